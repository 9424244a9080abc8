//! The sending side of a process's control socket.
//!
//! Ranks send while they make progress and hold locks that other threads need, but `mpjrun` might be stopped or busy.
//! Messages therefore go into a queue. If no other thread is writing, the sending thread writes the queue.

use std::fmt;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use rustix::net::SendFlags;

use super::wire::{ToLauncher, encode_frame};

pub(super) struct ControlWriter {
    socket: UnixStream,
    queue: Mutex<Queue>,
    write_ended: Condvar,
}

#[derive(Default)]
struct Queue {
    /// The enqueued bytes that no thread has taken to write.
    bytes: Vec<u8>,
    /// The total number of bytes that were enqueued; `written` counts those that were written.
    enqueued: u64,
    written: u64,
    /// Whether a thread is writing the queue.
    is_writing: bool,
    send_error: Option<String>,
}

impl Queue {
    fn check(&self) -> Result<(), String> {
        self.send_error.clone().map_or(Ok(()), Err)
    }
}

impl fmt::Debug for ControlWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ControlWriter")
    }
}

impl ControlWriter {
    pub(super) fn new(socket: UnixStream) -> Arc<Self> {
        Arc::new(ControlWriter { socket, queue: Mutex::default(), write_ended: Condvar::new() })
    }

    pub(super) fn socket(&self) -> &UnixStream {
        &self.socket
    }

    /// Returns whether a write has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.queue().send_error.is_some()
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enqueues a message, and waits until it has been written. For processes that might exit right afterwards.
    ///
    /// # Errors
    /// A write to the socket fails or has failed, or the message is too long.
    pub(super) fn send_and_wait(&self, message: &ToLauncher) -> Result<(), String> {
        let mut queue = self.enqueue(message)?;
        let end = queue.enqueued;
        while queue.written < end {
            queue.check()?;
            if queue.is_writing {
                queue = self.write_ended.wait(queue).unwrap_or_else(PoisonError::into_inner);
            } else {
                queue.is_writing = true;
                drop(queue);
                self.write(SendFlags::empty());
                queue = self.queue();
            }
        }
        Ok(())
    }

    /// Enqueues a message. If no thread is writing, writes what the socket accepts and starts a thread for the rest.
    ///
    /// # Errors
    /// As [`send_and_wait`](Self::send_and_wait), if the error is known already.
    pub(super) fn post(self: &Arc<Self>, message: &ToLauncher) -> Result<(), String> {
        let mut queue = self.enqueue(message)?;
        if std::mem::replace(&mut queue.is_writing, true) {
            return Ok(());
        }
        drop(queue);
        if self.write(SendFlags::DONTWAIT) {
            return self.queue().check();
        }
        let writer = Arc::clone(self);
        let rest = move || writer.write(SendFlags::empty());
        if std::thread::Builder::new().name("control out".into()).spawn(rest).is_err() {
            // A waiting or later call writes the rest.
            self.queue().is_writing = false;
            self.write_ended.notify_all();
        }
        Ok(())
    }

    fn enqueue(&self, message: &ToLauncher) -> Result<MutexGuard<'_, Queue>, String> {
        let frame = encode_frame(message).map_err(|e| e.to_string())?;
        let mut queue = self.queue();
        queue.check()?;
        queue.bytes.extend_from_slice(&frame);
        queue.enqueued += frame.len() as u64;
        Ok(queue)
    }

    /// Writes until the queue is empty or a write fails, clears `is_writing`, and returns true.
    ///
    /// Returns false and leaves `is_writing` set if the socket is full and `flags` forbids waiting.
    fn write(&self, flags: SendFlags) -> bool {
        let mut queue = self.queue();
        while !queue.bytes.is_empty() {
            let bytes = std::mem::take(&mut queue.bytes);
            drop(queue);
            let (written, outcome) = self.write_bytes(&bytes, flags);
            queue = self.queue();
            queue.written += written as u64;
            self.write_ended.notify_all();
            if let Err(error) = outcome {
                queue.bytes.splice(..0, bytes[written..].iter().copied());
                if error == Errno::AGAIN && flags.contains(SendFlags::DONTWAIT) {
                    return false;
                }
                queue.send_error = Some(format!("cannot write to the launcher: {error}"));
                break;
            }
        }
        queue.is_writing = false;
        drop(queue);
        self.write_ended.notify_all();
        true
    }

    /// Returns the number of bytes that were written, and the error if these are not all.
    fn write_bytes(&self, bytes: &[u8], flags: SendFlags) -> (usize, Result<(), Errno>) {
        let mut written = 0;
        while written < bytes.len() {
            match rustix::net::send(&self.socket, &bytes[written..], flags | SendFlags::NOSIGNAL) {
                Ok(more) => written += more,
                Err(Errno::INTR) => {}
                Err(error) => return (written, Err(error)),
            }
        }
        (written, Ok(()))
    }
}

//! Passes a block to another process by its offset: `cargo run -p mpj-pool --example two_processes`.
#![allow(clippy::print_stdout, reason = "a program that reports")]
#![allow(unsafe_code, reason = "reads memory that another process writes")]

use std::error::Error;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Command, Stdio};

use mpj_pool::{Magazine, Pool, RawBuffer, SharedStorage};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    if let (Some(fd), Some(epoch)) = (arguments.next(), arguments.next()) {
        return receive(fd.parse()?, epoch.parse()?);
    }
    let segment = SharedStorage::create(1 << 20)?;
    // SAFETY: the peer inherits this descriptor, and attaches it.
    let fd = unsafe { segment.borrow_fd() }.try_clone_to_owned()?;
    rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::empty())?;
    let mut peer = Command::new(std::env::current_exe()?)
        .args([fd.as_raw_fd().to_string(), segment.epoch().to_string()])
        .stdin(Stdio::piped())
        .spawn()?;
    drop(fd);

    let pool = Magazine::fixed(segment)?;
    let text = b"written by another process";
    let mut block = pool.alloc(text.len())?;
    block.as_uninit_mut()[..text.len()].write_copy_of_slice(text);
    let (_, offset) = block.region_offset().ok_or("shared memory has a key")?;
    let mut pipe = peer.stdin.take().ok_or("piped above")?;
    pipe.write_all(&(offset as u64).to_le_bytes())?;
    pipe.write_all(&(text.len() as u64).to_le_bytes())?;
    drop(pipe);
    // The block stays allocated until the peer is done.
    let status = peer.wait()?;
    drop(block);
    if status.success() { Ok(()) } else { Err("the peer failed".into()) }
}

fn receive(fd: i32, epoch: u64) -> Result<(), Box<dyn Error>> {
    // SAFETY: the sender passes this descriptor, and nothing else here uses it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let view = SharedStorage::attach(fd)?.expect_epoch(epoch)?;
    let mut words = [[0; 8]; 2];
    for word in &mut words {
        std::io::stdin().read_exact(word)?;
    }
    let [offset, len] = words.map(|word| u64::from_le_bytes(word) as usize);
    let at = view.ptr_at(offset, len).ok_or("outside of the segment")?;
    let mut copy = vec![0; len];
    // SAFETY: `ptr_at` has checked the range, and the sender does not write there while it waits for us.
    unsafe { at.as_ptr().copy_to_nonoverlapping(copy.as_mut_ptr(), len) };
    println!("at +{offset:#x} in segment {epoch:#x}: {}", String::from_utf8_lossy(&copy));
    Ok(())
}

//! Pending operations that borrow their buffers for a scope.

use std::future::{Future, IntoFuture};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use crate::common::{SIZES, alive, blanks, ranks, samples};
use mpj::{ANY_SOURCE, ErrorClass, World};

#[mpj::test(ranks = 2)]
fn scopes_borrow_buffers(world: World) -> mpj::Result<()> {
    let (me, other) = (world.rank(), 1 - world.rank());
    for len in SIZES {
        let mine = samples::<u32>(me, 0, len);
        let (mut first, mut second) = (blanks::<u32>(len), blanks::<u32>(len));
        let answer = world.scope(|s| {
            let mut one = s.irecv(&mut first, other, 1)?;
            let two = s.irecv(&mut second, other, 2)?;
            let sent = [s.isend(&mine, other, 1)?, s.issend(&mine, other, 2)?];
            let (borrow, status) = two.wait()?;
            assert_eq!((borrow.as_slice(), status.tag()), (&samples::<u32>(other, 0, len)[..], 2));
            borrow.reverse(); // the borrow has ended inside the scope
            let (_, status) = loop {
                if let Some(outcome) = one.test() {
                    break outcome?;
                }
            };
            assert_eq!(status.bytes(), 4 * len);
            // The borrow of the buffer was returned; a second one would alias it.
            assert_eq!(one.test().unwrap().unwrap_err().class(), ErrorClass::Request);
            assert!(!one.cancel());
            assert_eq!(one.wait().unwrap_err().class(), ErrorClass::Request);
            for mut send in sent {
                while send.test().transpose()?.is_none() {}
                assert_eq!(send.wait().unwrap_err().class(), ErrorClass::Request);
            }
            Ok::<_, mpj::Error>(len + 1)
        })?;
        let mut expected = samples::<u32>(other, 0, len);
        assert_eq!((answer, &first), (len + 1, &expected));
        expected.reverse();
        assert_eq!(second, expected);
    }
    Ok(())
}

#[mpj::test(ranks = 2)]
fn scope_waits_for_forgotten_operations(world: World) -> mpj::Result<()> {
    let (me, other) = (world.rank(), 1 - world.rank());
    for len in SIZES {
        let mine = samples::<i16>(me, 0, len);
        let mut parts = vec![blanks::<i16>(len); 100]; // more operations than a scope has inline slots
        world.scope(|s| {
            for part in &mut parts {
                std::mem::forget(s.irecv(part, other, 3)?);
                let _ = s.isend(&mine, other, 3)?;
            }
            Ok::<(), mpj::Error>(())
        })?;
        assert!(parts.iter().all(|part| *part == samples::<i16>(other, 0, len)));
    }
    Ok(())
}

#[mpj::test(ranks = 2)]
fn drop_and_cancel_cancel_scoped_receives(world: World) -> mpj::Result<()> {
    let other = 1 - world.rank();
    let (mut dropped, mut cancelled, mut kept) = ([1u8], [2u8], [3u8]);
    world.scope(|s| {
        drop(s.irecv(&mut dropped, other, 0)?);
        let back = s.irecv(&mut cancelled, other, 0)?;
        assert!(back.cancel());
        assert_eq!(back.wait().expect_err("cancelled").class(), ErrorClass::Request);
        let stays = s.irecv(&mut kept, other, 0)?;
        s.isend(&[7u8], other, 0)?;
        stays.wait().map(|_| ())
    })?;
    assert_eq!((dropped, cancelled, kept), ([1], [2], [7]));
    Ok(())
}

#[test]
fn panic_in_a_scope_completes_its_operations_and_unwinds() {
    ranks(2, |world| {
        let (me, other) = (world.rank(), 1 - world.rank());
        let mine = samples::<u64>(me, 0, 100_000);
        let (mut never, mut comes) = ([5u8; 64], blanks::<u64>(100_000));
        let panic = catch_unwind(AssertUnwindSafe(|| {
            world.scope(|s| {
                std::mem::forget(s.irecv(&mut never, ANY_SOURCE, 99));
                std::mem::forget(s.isend(&mine, other, 1));
                let comes = s.irecv(&mut comes, other, 1).expect("starts");
                comes.wait().expect("comes");
                world.barrier().expect("the other rank has received its message");
                std::panic::resume_unwind(Box::new("on purpose"));
            })
        }));
        assert_eq!(panic.unwrap_err().downcast_ref::<&str>(), Some(&"on purpose"));
        assert_eq!((never, comes), ([5u8; 64], samples::<u64>(other, 0, 100_000)));
        world.barrier()?; // both ranks have cancelled their receives
        world.send(&[1u8], other, 99)?; // it matches no stale receive
        world.recv(&mut never[..1], other, 99)?;
        assert_eq!(never[0], 1);
        world.barrier()
    });
}

/// The panic is reported only after its scope has ended, so the scope must not wait for ranks that wait for this rank.
#[test]
fn panicking_scope_does_not_wait_for_its_sends() {
    for synchronous in [false, true] {
        let outcome = alive(|| {
            mpj::threads(2, move |world| {
                if world.rank() == 0 {
                    let big = vec![1u8; 1 << 20];
                    world.scope(|s| {
                        let sent = if synchronous { s.issend(&big[..9], 1, 0) } else { s.isend(&big, 1, 0) };
                        std::mem::forget(sent);
                        std::panic::resume_unwind(Box::new("on purpose"));
                    });
                }
                // Waits for a message that rank 0 would have sent later.
                let error = world.recv(&mut [0u8], 0, 5).expect_err("rank 0 has panicked");
                assert_eq!(error.failed_rank(), Some(0));
                Ok::<_, mpj::Error>(())
            })
        });
        assert!(outcome.is_err(), "a rank panicked");
    }
}

/// A waker that waits until another thread has used the same scope.
struct Meeting {
    woken: Mutex<Sender<()>>,
    used: Mutex<Receiver<()>>,
    has_met: AtomicBool,
}

impl Wake for Meeting {
    fn wake(self: Arc<Self>) {
        let _ = self.woken.lock().expect("one waker").send(());
        let used = self.used.lock().expect("one waker").recv_timeout(Duration::from_secs(5));
        self.has_met.store(used.is_ok(), Ordering::SeqCst);
    }
}

#[test]
fn waker_of_a_cancelled_receive_runs_without_the_lock_of_its_scope() {
    ranks(1, |world| {
        let (mut first, mut second) = ([0u8], [0u8]);
        let (woken, is_woken) = channel();
        let (has_used, used) = channel();
        let (woken, used, has_met) = (Mutex::new(woken), Mutex::new(used), AtomicBool::new(false));
        let meeting = Arc::new(Meeting { woken, used, has_met });
        let waker = Waker::from(Arc::clone(&meeting));
        world.scope(|scope| {
            // The operations of other threads than the owner of the scope are stored under a lock.
            thread::scope(|threads| {
                threads.spawn(|| {
                    let mut future = scope.irecv(&mut first, 0, 1).expect("alive").into_future();
                    let mut other = scope.irecv(&mut second, 0, 2).expect("alive");
                    assert!(Pin::new(&mut future).poll(&mut Context::from_waker(&waker)).is_pending());
                    thread::scope(|threads| {
                        threads.spawn(move || {
                            is_woken.recv().expect("woken");
                            assert!(other.test().is_none());
                            has_used.send(()).expect("the waker waits");
                        });
                        drop(future);
                    });
                });
            });
        });
        assert!(meeting.has_met.load(Ordering::SeqCst));
        Ok(())
    });
}

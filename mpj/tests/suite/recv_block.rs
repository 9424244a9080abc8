//! Messages received in place, in the sender's blocks, between threads.

use std::sync::Mutex;

use crate::common::{alive, block_programs as programs, forget};

#[test]
fn messages_are_read_in_place() {
    for ranks in [1, 2, 3, 5] {
        let in_place = Mutex::new(Vec::new());
        let outcome = alive(|| {
            mpj::threads(ranks, |world| {
                programs::refusals(&world)?;
                let found = programs::ring(&world)?;
                in_place.lock().unwrap().push(found);
                Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
            })
        });
        outcome.unwrap_or_else(|error| panic!("{ranks} ranks: {error}"));
        // Only rendezvous messages from other ranks are read in place: three slices and three buffers without objects.
        let wanted = if ranks == 1 { 0 } else { 6 };
        assert_eq!(in_place.into_inner().unwrap(), vec![wanted; ranks], "{ranks} ranks");
    }
}

#[test]
fn received_block_outlives_sender_and_world() {
    let kept = Mutex::new(None);
    let outcome = alive(|| {
        mpj::threads(3, |world| {
            if let Some(lent) = programs::sender_leaves_with_lent_block(&world)? {
                *kept.lock().unwrap() = Some(lent);
            }
            Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
        })
    });
    outcome.unwrap();
    let lent = kept.into_inner().unwrap().expect("rank 1 has kept the block");
    assert!(lent.is_zero_copy() && programs::is_whole(&lent));
}

/// A received block that is never dropped delays only ranks that wait for it, and only until its holder leaves.
#[mpj::test(ranks = 2)]
fn send_fails_if_the_receiver_exits_with_the_block(world: mpj::World) -> mpj::Result<()> {
    if world.rank() == 0 {
        let sending = world.isend(world.alloc_slice(1u8, 1 << 20)?, 1, 0)?;
        let failed = sending.wait().expect_err("the block is never returned");
        assert_eq!(failed.error().failed_rank(), Some(1), "{failed}");
        assert!(failed.into_parts().1.is_none(), "the receiver still holds the block");
        // The next allocations use other blocks.
        assert!(world.alloc_slice(2u8, 1 << 20)?.iter().all(|byte| *byte == 2));
    } else {
        forget(world.recv_block(0, 0)?.0);
    }
    Ok(())
}

#[mpj::test(ranks = 2)]
fn block_from_proc_null_is_empty(world: mpj::World) -> mpj::Result<()> {
    let (lent, status) = world.recv_block(None, 0)?;
    assert!(lent.is_empty() && !lent.is_zero_copy() && status.source().is_none());
    assert_eq!(lent.try_as_slice::<f64>()?, [0.0; 0]);
    assert!(lent.try_into_buffer().expect_err("no message").to_string().contains("PROC_NULL"));
    let (message, status) = world.recv_buffer(None, 0)?;
    assert!(status.source().is_none() && message.sections().next().is_none());
    let (message, status) = world.recv_buffer_in(mpj::pool::global(), 0, mpj::PROC_NULL, 0)?;
    assert!(status.source().is_none() && message.sections().next().is_none());
    assert_eq!(world.recv_object::<u8>(None, 0).unwrap_err().class(), mpj::ErrorClass::Rank);
    Ok(())
}

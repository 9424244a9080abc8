//! The ring between two threads: order, content, both forms, full and empty.

use super::{Received, Ring};

const CELLS: u32 = 64;

#[test]
fn frames_keep_order_and_content_across_threads() {
    let (mut tx, mut rx) = Ring::pair(CELLS);
    let frames = 100_000u32;
    let sender = std::thread::spawn(move || {
        for i in 0..frames {
            while !tx.has_room() {
                std::thread::yield_now();
            }
            if i % 7 == 0 {
                tx.send_fragment(&i.to_le_bytes(), i, i ^ 5);
            } else {
                let body = [i as u8; 40];
                let len = i as usize % 41;
                tx.send_inline(&i.to_le_bytes(), len, |room| {
                    for (to, from) in room.iter_mut().zip(&body) {
                        to.write(*from);
                    }
                });
            }
        }
    });
    let mut next = 0u32;
    while next < frames {
        let got = rx.receive(
            |frame| match frame {
                Received::Fragment(head, index, len) => {
                    assert_eq!(head, next.to_le_bytes());
                    assert_eq!((index, len), (next, next ^ 5));
                    assert_eq!(next % 7, 0);
                }
                Received::Inline(head, body) => {
                    assert_eq!(head, next.to_le_bytes());
                    assert_eq!(body.len(), next as usize % 41);
                    assert!(body.iter().all(|b| *b == next as u8));
                }
            },
            || (),
        );
        if got { next += 1 } else { std::thread::yield_now() }
    }
    sender.join().unwrap();
}

#[test]
fn a_full_ring_has_no_room_until_the_receiver_tells() {
    let (mut tx, mut rx) = Ring::pair(CELLS);
    for _ in 0..CELLS {
        assert!(tx.has_room());
        tx.send_inline(&[1; 8], 0, |_| ());
    }
    assert!(!tx.has_room());
    let mut woken = 0;
    assert!(rx.receive(|_| (), || woken += 1));
    rx.tell(|| woken += 1);
    assert_eq!(woken, 1, "the sender said that it starves");
    assert!(tx.has_room());
}

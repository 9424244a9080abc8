//! Models of copies with a helper that comes at any time.

use loom::sync::Arc;
use loom::thread;

use super::SmCoopCopy;

/// Copies `N` bytes twice while another thread tries `tries` times to help. The second copy uses other memory.
fn copies_with_help<const N: usize>(tries: usize) {
    loom::model(move || {
        let coop = Arc::new(SmCoopCopy::default());
        let helper = {
            let coop = Arc::clone(&coop);
            thread::spawn(move || (0..tries).filter(|_| coop.help()).count() as u32)
        };
        let mut helped = 0;
        for round in 1..=2 {
            let from: [u8; N] = std::array::from_fn(|i| 16 * round + i as u8);
            let mut to = [0; N];
            let (src, dst) = (from.as_ptr().expose_provenance(), to.as_mut_ptr().expose_provenance());
            // SAFETY: both have `N` bytes, and stay until the call returns; nobody else copies.
            helped += unsafe { coop.copy(src, dst, N, || ()) };
            assert_eq!(to, from, "all bytes are copied when the call returns");
        }
        assert_eq!(helper.join().unwrap(), helped, "the helper has copied no other piece");
    });
}

#[test]
fn helper_copies_no_piece_of_the_receiver() {
    copies_with_help::<3>(2);
}

#[test]
fn late_helper_finds_nothing_or_the_next_copy() {
    copies_with_help::<2>(4);
}

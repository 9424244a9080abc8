//! Tests of the replies with a value of another rank.

use super::super::get_reply::find;
use super::super::packer::Packer;

/// The reply of a server that has the value.
fn stored() -> Vec<u8> {
    let owner = Packer::default().proc("ns@1", 0).kval_u32("number", 1);
    let owner = owner.kval_string("other", "x").kval_string("card", "abc");
    Packer::default().status(0).object(&owner.finish()).finish()
}

/// The reply of Open MPI 5.0.11 with a value that it has requested from another host.
fn requested() -> Vec<u8> {
    let card = format!("2/{}", "a".repeat(98));
    let mut owner = b"\x02\x26prterun-vm-22872@1\0\0\x02\x12mpj-root\0\x03\xca\x01".to_vec();
    owner.extend([card.as_bytes(), b"\0"].concat());
    [&[0, 0, 0, 1, 0, 0, 0, 0, 2, 0x89, 1], &owner[..]].concat()
}

#[test]
fn value_is_read_in_both_encodings() {
    assert_eq!(find(&stored(), "card"), Ok("abc".into()));
    assert_eq!(find(&requested(), "mpj-root"), Ok(format!("2/{}", "a".repeat(98))));
    for reply in [stored(), requested()] {
        assert_eq!(find(&reply, "none"), Err("no value of none".into()));
    }
}

#[test]
fn invalid_replies_are_rejected() {
    let status = [0, 0, 0, 1, 0, 0, 0, 0];
    let object = |bytes: &[u8]| [&status[..], &[2, bytes.len() as u8], bytes].concat();
    let proc = b"\x02\x06ns\0\0";
    for (reply, why) in [
        (status.to_vec(), "a message with 0 bytes where 1 bytes were expected"),
        ([&status[..], &[4, 0]].concat(), "an item with 2 elements instead of one"),
        ([&status[..], &[1, 0]].concat(), "the length -1"),
        (
            [&status[..], &[2], &[0xff; 9]].concat(),
            "a message with 0 bytes where 18446744073709551615 bytes were expected",
        ),
        (object(b"\x02\x04ns"), "a string without a NUL at its end"),
        (object(&[&proc[..], b"\x02\x04k\0\x0e\x01"].concat()), "a value of type 14 instead of a string"),
        (object(&[&proc[..], b"\x02\x04k\0\x03\x04\xff\0"].concat()), "a value of k that is no text"),
        (object(proc), "no value of k"),
    ] {
        assert_eq!(find(&reply, "k"), Err(why.into()), "{reply:?}");
    }
    // A truncated reply is an error.
    for (whole, key) in [(stored(), "card"), (requested(), "mpj-root")] {
        assert!((0..whole.len()).all(|len| find(&whole[..len], key).is_err()));
    }
}

//! Tests of the encoding, and of what a server states about a job.

use super::super::buffer::{Unpacker, Value};
use super::super::job_info;
use super::super::packer::Packer;

pub(super) fn kval(key: &str, kind: u16, data: &[u8]) -> Vec<u8> {
    let key_len = (key.len() as u32 + 1).to_be_bytes();
    [&[0, 0, 0, 1], &key_len[..], key.as_bytes(), &[0], &kind.to_be_bytes(), data].concat()
}

/// The part of a rank in the reply for a job.
fn rank_info(rank: u32, host: u32) -> Vec<u8> {
    let values = Packer::default().rank(rank).kval_u32("pmix.lrank", 0).kval_u32("pmix.nodeid", host);
    Packer::default().kval_object("pmix.pblob", &values.finish()).finish()
}

/// The reply for a job with these hosts of its ranks.
pub(super) fn job(hosts: &[u32]) -> Vec<u8> {
    let mut reply = Packer::default().string("ns@1").kval_u32("pmix.job.size", hosts.len() as u32).finish();
    for (rank, host) in hosts.iter().enumerate() {
        reply.extend(rank_info(rank as u32, *host));
    }
    reply
}

fn runs(reply: &[u8]) -> Result<Vec<(u32, u32)>, String> {
    Ok(job_info::parse(reply)?.runs().map(|(host, ranks)| (host.0, ranks.len() as u32)).collect())
}

/// Values of every type that the encoding has. A server can send them in addition to the values that a client needs.
fn values_of_every_type() -> Vec<u8> {
    let text = b"\0\0\0\x03ab\0";
    let size_2 = [0, 15, 0, 0, 0, 0, 0, 0, 0, 2];
    let proc = [&text[..], &[0, 0, 0, 9]].concat();
    let info = [&text[..], &[0; 4], &[0, 3], text].concat();
    let widths = [
        (1, 1),
        (7, 1),
        (12, 1),
        (8, 2),
        (13, 2),
        (9, 4),
        (14, 4),
        (20, 4),
        (40, 4),
        (10, 8),
        (15, 8),
        (19, 8),
        (18, 16),
    ];
    let mut all: Vec<u8> =
        widths.iter().flat_map(|(kind, width)| kval("fixed", *kind, &vec![1; *width as usize])).collect();
    all.extend(kval("none", 0, b""));
    all.extend(kval("no string", 3, &[0; 4]));
    for kind in [3, 16, 17] {
        all.extend(kval("text", kind, text));
    }
    for kind in [4, 5, 6, 11] {
        all.extend(kval("integer", kind, &[0, 14, 0, 0, 0, 5]));
    }
    for kind in [27, 42] {
        all.extend(kval("object", kind, &[&size_2[..], b"xy"].concat()));
    }
    all.extend(kval("proc", 22, &proc));
    all.extend(kval("process", 38, &[&proc, &text[..], text, &[0, 14, 0, 0, 0, 5], &[3]].concat()));
    all.extend(kval("empty array", 39, &[0, 0]));
    let array = |kind: u8, elements: &[u8]| [&[0, kind], &size_2[..], elements].concat();
    all.extend(kval("procs", 39, &array(22, &[&proc[..], &proc].concat())));
    all.extend(kval("infos", 39, &array(24, &[&info[..], &info].concat())));
    all.extend(kval("values", 39, &array(21, &[0, 1, 1, 0, 14, 0, 0, 0, 1])));
    all.extend(kval("kvals", 39, &array(28, &[text, &[0, 1, 1][..], text, &[0, 1, 0]].concat())));
    all.extend(kval("texts", 39, &array(3, &[text, &text[..]].concat())));
    all.extend(kval("numbers", 39, &array(14, &[1; 8])));
    all.extend(kval("sizes", 39, &array(4, &[&[0, 14], &[1; 8][..]].concat())));
    let inner = array(14, &[1; 8]);
    all.extend(kval("arrays", 39, &array(39, &[&inner[..], &inner].concat())));
    // Types that this encoding does not have, without their data. Open MPI 5.0 sends the second one to hosts with
    // devices.
    all.extend(kval("later type", 54, b""));
    all.extend(kval("array of a later type", 39, &array(54, b"")));
    all.extend(kval(
        "long array of a later type",
        39,
        &[0, 54, 0, 15, 255, 255, 255, 255, 255, 255, 255, 255],
    ));
    all
}

#[test]
fn hosts_of_known_servers_are_placed() {
    assert_eq!(runs(&job(&[0, 0, 0])), Ok(vec![(0, 3)]));
    assert_eq!(runs(&job(&[0, 1, 2, 0, 1])), Ok(vec![(0, 1), (1, 1), (2, 1), (0, 1), (1, 1)]));
    // Numbers of hosts follow the order of their first rank.
    assert_eq!(runs(&job(&[7, 7, 3, 7])), Ok(vec![(0, 2), (1, 1), (0, 1)]));
    // Ranks in any order, and names of hosts without numbers, or with one number for all.
    let name = |rank, host: &str| {
        let values = Packer::default().rank(rank).kval_string("pmix.hname", host);
        Packer::default().kval_object("pmix.pblob", &values.finish()).finish()
    };
    let slurm = |rank, host: &str| {
        let values = Packer::default().rank(rank).kval_string("pmix.hname", host).kval_u32("pmix.nodeid", 7);
        Packer::default().kval_object("pmix.pblob", &values.finish()).finish()
    };
    let head = Packer::default().string("ns@1").finish();
    let size = |size| Packer::default().kval_u32("pmix.job.size", size).finish();
    let ranks = [name(2, "b"), name(0, "a"), name(1, "a")].concat();
    assert_eq!(runs(&[head.clone(), ranks, size(3)].concat()), Ok(vec![(0, 2), (1, 1)]));
    let ranks = [slurm(0, "a"), slurm(1, "a"), slurm(2, "b")].concat();
    assert_eq!(runs(&[head.clone(), size(3), ranks].concat()), Ok(vec![(0, 2), (1, 1)]));
    let others = values_of_every_type();
    let full = [&head[..], &others, &size(1), &others, &rank_info(0, 5), &others].concat();
    assert_eq!(runs(&full), Ok(vec![(0, 1)]));
}

#[test]
fn invalid_jobs_are_rejected() {
    let head = Packer::default().string("ns@1").finish();
    let size = |size| Packer::default().kval_u32("pmix.job.size", size).finish();
    let nested =
        [&[0, 39, 0, 15, 0, 0, 0, 0, 0, 0, 0, 1].repeat(9), &[0, 1, 0, 15, 0, 0, 0, 0, 0, 0, 0, 0][..]]
            .concat();
    let lie = [0, 24, 0, 15, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
    for (parts, why) in [
        (vec![], "no number of ranks (pmix.job.size)"),
        (
            vec![size(2), rank_info(0, 0)],
            "1 hosts of ranks (pmix.nodeid, pmix.hname), expected one for each of 2 ranks",
        ),
        (
            vec![size(u32::MAX), rank_info(0, 0)],
            "1 hosts of ranks (pmix.nodeid, pmix.hname), expected one for each of 4294967295 ranks",
        ),
        (
            vec![size(2), rank_info(0, 0), rank_info(0, 0)],
            "2 hosts of ranks (pmix.nodeid, pmix.hname), expected one for each of 2 ranks",
        ),
        (
            vec![size(1), rank_info(u32::MAX, 0)],
            "1 hosts of ranks (pmix.nodeid, pmix.hname), expected one for each of 1 ranks",
        ),
        (vec![kval("k", 41, b"")], "a value of type 41, which mpj does not read, in the value of k"),
        (vec![kval("k", 39, &nested)], "arrays in more than 8 arrays, in the value of k"),
        (vec![kval("k", 39, &lie)], "a message with 0 bytes where 4 bytes were expected, in the value of k"),
        (vec![kval("k", 3, &[0xff; 4])], "a string of -1 bytes, in the value of k"),
        (vec![kval("k", 3, &[0, 0, 0, 1, 9])], "a string without a NUL at its end, in the value of k"),
    ] {
        assert_eq!(runs(&[head.clone(), parts.concat()].concat()), Err(why.into()));
    }
    // A truncated reply is an error, unless its complete part describes the job of two ranks.
    let whole = [job(&[0, 1]), values_of_every_type(), rank_info(2, 0)].concat();
    for len in 0..whole.len() {
        assert!(
            runs(&whole[..len]).is_ok_and(|runs| runs.len() == 2) || runs(&whole[..len]).is_err(),
            "{len}"
        );
    }
}

#[test]
fn values_have_their_types() {
    let bytes =
        [kval("n", 13, &[1, 2]), kval("i", 6, &[0, 9, 0, 0, 0, 5]), kval("t", 3, b"\0\0\0\x02x\0")].concat();
    let mut buffer = Unpacker::new(&bytes);
    let values = std::array::from_fn(|_| buffer.kval().unwrap());
    let wanted: [(&[u8], Value<'_>); 3] =
        [(b"n", Value::Number(0x102)), (b"i", Value::Number(5)), (b"t", Value::Text(b"x"))];
    assert_eq!(values, wanted);
    assert!(buffer.is_empty());
}

//! More than 4 GiB in one section.
#![allow(unsafe_code, reason = "the block contains a whole message")]

use mpj_buffer::pool::{Pool, global};
use mpj_buffer::{Buffer, MESSAGE_HEADER_LEN, Overflow, ReadError, Section, section_len};

const COUNT: usize = (5 << 30) / 8;

fn available() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

#[test]
#[ignore = "takes 5 GiB of memory and some seconds; run it with --ignored"]
fn section_of_five_gib_round_trips() {
    assert!(available() > 7 << 30, "need 7 GiB of free memory, have {} bytes", available());
    let bytes = MESSAGE_HEADER_LEN + section_len::<u64>(COUNT).unwrap() + section_len::<u8>(3).unwrap();
    let mut buffer = Buffer::with_capacity(bytes).unwrap();
    buffer.fill_with(COUNT, |i| i as u64 * 3).unwrap();
    buffer.write(b"end").unwrap();
    let left = buffer.remaining_capacity();
    let beyond = buffer.gather(&[0u16], &vec![0u32; left]);
    assert_eq!(beyond, Err(Overflow { needed: 2 * left + 29, available: left }.into()));
    let message = buffer.commit();
    let len = message.len();
    assert_eq!(len, 16 + 16 + 8 * COUNT + 16 + 3);

    // SAFETY: the block contains the message that it was taken from.
    let message = unsafe { Buffer::from_block(message.into_block(), 0, len) };
    let mut message = message.map_err(|refused| refused.error).unwrap();
    let sections: Vec<Section> = message.sections().collect();
    assert_eq!(sections.iter().map(|s| s.count).collect::<Vec<_>>(), [COUNT as u64, 3]);
    let mut one = [0u64; 1];
    let past = ReadError::PastSection { needed: COUNT as u64 + 1, available: COUNT as u64 };
    assert_eq!(message.view_n::<u64>(COUNT + 1), Err(past));
    let edge = (4 << 30) / 8 - 2;
    assert_eq!(message.view_n::<u64>(edge).map(<[u64]>::len), Ok(edge));
    let next = edge as u64;
    assert_eq!(message.view_n::<u64>(3), Ok(&[next * 3, next * 3 + 3, next * 3 + 6][..]));
    assert_eq!(message.view_n::<u64>(COUNT - edge - 4).map(<[u64]>::len), Ok(COUNT - edge - 4));
    message.read(&mut one).unwrap();
    assert_eq!(one, [(COUNT as u64 - 1) * 3]);
    assert_eq!(message.view::<u8>(), Ok(&b"end"[..]));
    message.rewind();
    let all = message.view::<u64>().unwrap();
    assert!(all.iter().enumerate().all(|(i, x)| *x == i as u64 * 3));
    drop(message.clear());
    global().trim();
}

//! The paths of every device, at both sides of each threshold.

use DataPath::{Auto, Buffered, ZeroCopy};

use super::*;
use crate::config::Config;
use crate::{ibvdev, niodev, shmdev, smdev};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Enough credit for each body.
const CREDIT: u64 = 1 << 40;

/// Memory of a body, and whether its device can export it.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Memory {
    is_contiguous: bool,
    in_region: bool,
    is_owned: bool,
    can_export: bool,
}

const USER: Memory = Memory { is_contiguous: true, in_region: false, is_owned: false, can_export: false };
const STRIDED: Memory = Memory { is_contiguous: false, ..USER };
/// A pool block that the caller lends.
const LENT_BLOCK: Memory = Memory { in_region: true, ..USER };
const OWN: Memory = Memory { is_owned: true, can_export: true, ..USER };
const OWN_STRIDED: Memory = Memory { is_contiguous: false, can_export: false, ..OWN };
const OWN_BLOCK: Memory = Memory { in_region: true, ..OWN };
/// A block outside of the device's exportable storage, such as a bounce buffer.
const OTHER_BLOCK: Memory = Memory { can_export: false, ..OWN_BLOCK };

const ALL_MEMORY: [Memory; 7] = [USER, STRIDED, LENT_BLOCK, OWN, OWN_STRIDED, OWN_BLOCK, OTHER_BLOCK];

fn body(path: DataPath, memory: Memory, bytes: usize) -> LocalBody {
    let Memory { is_contiguous, in_region, is_owned, .. } = memory;
    LocalBody { path, bytes, is_contiguous, in_region, is_owned }
}

/// A device with every path that the engine uses.
fn full() -> Caps {
    Caps {
        get: Some(SizeRange { min: 32 * KIB, max: MIB }),
        zcopy: Some(SizeRange { min: 4 * KIB, max: 6 * KIB }),
        noncontiguous: true,
        register_min: Some(256 * KIB),
        export_min: Some(16 * KIB),
        shared_views: false,
        ..Caps::frames(64 * KIB, 64 * KIB)
    }
}

/// The capabilities of the devices with default parameters, as the drivers compute them.
fn caps(device: &str) -> Caps {
    let config = Config::default();
    match device {
        "smdev" => smdev::caps(&config, 64 * KIB),
        "shmdev" => shmdev::caps(&config, 64 * KIB, true),
        "shmdev without pool" => shmdev::caps(&config, 64 * KIB, false),
        "ibvdev" => ibvdev::caps(&config, 1 << 30),
        "niodev" => niodev::caps(&config),
        "full" => full(),
        _ => Caps::NONE,
    }
}

const DEVICES: [&str; 7] =
    ["smdev", "shmdev", "shmdev without pool", "ibvdev", "niodev", "full", "not connected"];

/// Returns the path of a message from its sender: `block` stands for a bounce buffer that the path requires, `bounce`
/// for an implicit one, which exists only if `has_blocks` is true.
fn sent(
    caps: &Caps,
    path: DataPath,
    memory: Memory,
    bytes: usize,
    (credit, mode, has_blocks): (u64, Mode, bool),
) -> String {
    let (buffer, memory) = match send_bounce(caps, body(path, memory, bytes)) {
        Bounce::Always => ("block, ", OTHER_BLOCK),
        Bounce::IfAvailable if has_blocks => ("bounce, ", OTHER_BLOCK),
        Bounce::IfAvailable | Bounce::No => ("", memory),
    };
    let can_export = || {
        assert_ne!(path, DataPath::Buffered, "a bounce buffer is not exported instead of an eager message");
        memory.can_export
    };
    let protocol = match send_path(caps, body(path, memory, bytes), credit, mode, can_export) {
        SendPath::Eager => "eager",
        SendPath::EagerSync => "eager sync",
        SendPath::Rendezvous { export: false, register: false } => "frames",
        SendPath::Rendezvous { export: false, register: true } => "register",
        SendPath::Rendezvous { export: true, register: false } => "export",
        SendPath::Rendezvous { export: true, register: true } => "export or register",
    };
    format!("{buffer}{protocol}")
}

/// Rows of a device, a data path and memory: lengths, and what is chosen for them.
type Table<'a, Row> = &'a [(&'static str, DataPath, Memory, &'a [Row])];

#[test]
fn senders_choose_by_length_memory_and_data_path() {
    #[rustfmt::skip]
    let table: Table<'_, (usize, &str)> = &[
        ("smdev", Auto, USER, &[(0, "eager"), (64 * KIB, "eager"), (64 * KIB + 1, "frames")]),
        ("smdev", Auto, STRIDED, &[(64 * KIB, "eager"), (64 * KIB + 1, "frames")]),
        ("smdev", Auto, LENT_BLOCK, &[(64 * KIB, "eager"), (64 * KIB + 1, "frames")]),
        ("smdev", Auto, OWN, &[(64 * KIB, "eager"), (64 * KIB + 1, "export")]),
        ("smdev", Auto, OWN_STRIDED, &[(64 * KIB, "eager"), (64 * KIB + 1, "export")]),
        ("smdev", Auto, OWN_BLOCK, &[(0, "eager"), (16 * KIB - 1, "eager"), (16 * KIB, "export"), (MIB, "export")]),
        ("smdev", ZeroCopy, USER, &[(0, "eager"), (1, "register"), (MIB, "register")]),
        ("smdev", ZeroCopy, STRIDED, &[(0, "eager"), (1, "register")]),
        ("smdev", ZeroCopy, OWN_BLOCK, &[(0, "eager"), (1, "export or register")]),
        ("smdev", Buffered, USER, &[(0, "eager"), (1, "block, eager"), (64 * KIB, "block, eager"), (64 * KIB + 1, "block, export")]),
        ("smdev", Buffered, OWN_BLOCK, &[(0, "eager"), (16 * KIB, "block, eager")]),

        ("shmdev", Auto, USER, &[(0, "eager"), (64 * KIB, "eager"), (64 * KIB + 1, "frames")]),
        ("shmdev", Auto, STRIDED, &[(64 * KIB, "eager"), (64 * KIB + 1, "frames")]),
        ("shmdev", Auto, OWN_BLOCK, &[(16 * KIB - 1, "eager"), (16 * KIB, "export")]),
        ("shmdev", Auto, OTHER_BLOCK, &[(64 * KIB, "eager"), (64 * KIB + 1, "export")]),
        ("shmdev", ZeroCopy, USER, &[(1, "eager"), (64 * KIB, "eager"), (64 * KIB + 1, "frames")]),
        ("shmdev", ZeroCopy, OWN_BLOCK, &[(16 * KIB - 1, "eager"), (16 * KIB, "export")]),
        ("shmdev", Buffered, STRIDED, &[(0, "eager"), (1, "block, eager"), (64 * KIB + 1, "block, export")]),
        ("shmdev without pool", Auto, OWN_BLOCK, &[(64 * KIB, "eager"), (64 * KIB + 1, "frames")]),
        ("shmdev without pool", Buffered, USER, &[(64 * KIB, "block, eager"), (64 * KIB + 1, "block, frames")]),

        ("ibvdev", Auto, USER, &[
            (0, "eager"), (8 * KIB, "eager"), (8 * KIB + 1, "frames"), (32 * KIB - 1, "frames"),
            (32 * KIB, "bounce, register"), (256 * KIB - 1, "bounce, register"), (256 * KIB, "register"), (1 << 30, "register"),
        ]),
        ("ibvdev", Auto, STRIDED, &[
            (8 * KIB, "eager"), (32 * KIB - 1, "frames"), (32 * KIB, "bounce, register"), (256 * KIB, "bounce, register"),
            (16 * MIB, "bounce, register"), (16 * MIB + 1, "frames"),
        ]),
        ("ibvdev", Auto, LENT_BLOCK, &[(8 * KIB, "eager"), (32 * KIB - 1, "frames"), (32 * KIB, "register")]),
        ("ibvdev", Auto, OWN_BLOCK, &[(8 * KIB, "eager"), (32 * KIB - 1, "frames"), (32 * KIB, "register")]),
        ("ibvdev", ZeroCopy, USER, &[(0, "eager"), (1, "register"), (32 * KIB, "register"), (17 * MIB, "register")]),
        ("ibvdev", ZeroCopy, STRIDED, &[
            (1, "eager"), (8 * KIB, "eager"), (8 * KIB + 1, "frames"), (32 * KIB - 1, "frames"), (32 * KIB, "bounce, register"),
            (16 * MIB + 1, "frames"),
        ]),
        ("ibvdev", Buffered, USER, &[
            (0, "eager"), (8 * KIB, "block, eager"), (32 * KIB - 1, "block, frames"), (32 * KIB, "block, register"),
            (17 * MIB, "block, register"),
        ]),

        ("niodev", Auto, USER, &[(0, "eager"), (256 * KIB, "eager"), (256 * KIB + 1, "frames")]),
        ("niodev", Auto, OWN_BLOCK, &[(256 * KIB, "eager"), (256 * KIB + 1, "frames")]),
        ("niodev", ZeroCopy, STRIDED, &[(256 * KIB, "eager"), (256 * KIB + 1, "frames")]),
        ("niodev", Buffered, STRIDED, &[(0, "eager"), (256 * KIB, "block, eager"), (256 * KIB + 1, "block, frames")]),

        ("full", Auto, OWN_BLOCK, &[(16 * KIB - 1, "eager"), (16 * KIB, "export"), (32 * KIB, "export or register")]),
        ("full", Auto, STRIDED, &[(64 * KIB, "eager"), (64 * KIB + 1, "bounce, export or register"), (256 * KIB, "register")]),
        ("not connected", Auto, USER, &[(0, "eager"), (1, "frames")]),
    ];
    for &(device, path, memory, rows) in table {
        for &(bytes, expected) in rows {
            let found = sent(&caps(device), path, memory, bytes, (CREDIT, Mode::Standard, true));
            assert_eq!(found, expected, "{device}, {path:?}, {memory:?}, {bytes} bytes");
        }
    }
}

#[test]
fn credit_mode_and_available_blocks_change_the_path() {
    use Mode::{Standard, Synchronous};
    #[rustfmt::skip]
    let table = [
        ("smdev", Auto, USER, 1000, (1064, Standard, true), "eager"),
        ("smdev", Auto, USER, 1000, (1063, Standard, true), "frames"),
        ("smdev", Auto, USER, 0, (64, Standard, true), "eager"),
        ("smdev", Auto, USER, 0, (63, Standard, true), "frames"),
        ("smdev", Auto, OWN, 1000, (0, Standard, true), "export"),
        ("smdev", Buffered, USER, 1000, (0, Standard, true), "block, export"),
        ("smdev", Auto, USER, 1000, (CREDIT, Synchronous, true), "eager sync"),
        ("smdev", Auto, USER, 1000, (0, Synchronous, true), "frames"),
        ("smdev", ZeroCopy, USER, 1000, (CREDIT, Synchronous, true), "register"),
        ("ibvdev", Auto, USER, 8 * KIB, (0, Standard, true), "frames"),
        ("ibvdev", Auto, USER, 32 * KIB, (0, Standard, true), "bounce, register"),
        ("ibvdev", Auto, USER, 32 * KIB, (CREDIT, Standard, false), "register"),
        ("ibvdev", Auto, STRIDED, 32 * KIB, (CREDIT, Standard, false), "frames"),
        ("not connected", Auto, USER, 0, (0, Standard, true), "frames"),
        ("not connected", Buffered, USER, 1, (0, Synchronous, true), "block, frames"),
    ];
    for (device, path, memory, bytes, means, expected) in table {
        let found = sent(&caps(device), path, memory, bytes, means);
        assert_eq!(found, expected, "{device}, {path:?}, {memory:?}, {bytes} bytes, {means:?}");
    }
}

#[test]
fn receivers_with_a_key_choose_by_length_memory_and_data_path() {
    use ReceivePath::{Frames, Get, GetIntoBounce as Bounce};
    // The path if a bounce buffer is available, and if none is.
    #[rustfmt::skip]
    let table: Table<'_, (usize, ReceivePath, ReceivePath)> = &[
        ("smdev", Auto, USER, &[(1, Frames, Frames), (MIB, Frames, Frames)]),
        ("smdev", ZeroCopy, USER, &[(0, Frames, Frames), (1, Get, Get), (MIB, Get, Get)]),
        ("smdev", ZeroCopy, STRIDED, &[(1, Get, Get)]),
        ("smdev", Buffered, LENT_BLOCK, &[(1, Frames, Frames), (MIB, Frames, Frames)]),
        ("shmdev", ZeroCopy, USER, &[(1, Frames, Frames), (MIB, Frames, Frames)]),
        ("ibvdev", Auto, USER, &[
            (0, Frames, Frames), (32 * KIB - 1, Frames, Frames), (32 * KIB, Bounce, Get), (256 * KIB - 1, Bounce, Get),
            (256 * KIB, Get, Get), (17 * MIB, Get, Get),
        ]),
        ("ibvdev", Auto, STRIDED, &[
            (32 * KIB - 1, Frames, Frames), (32 * KIB, Bounce, Frames), (16 * MIB, Bounce, Frames), (16 * MIB + 1, Frames, Frames),
        ]),
        ("ibvdev", Auto, LENT_BLOCK, &[(32 * KIB - 1, Frames, Frames), (32 * KIB, Get, Get)]),
        ("ibvdev", ZeroCopy, USER, &[(0, Frames, Frames), (1, Get, Get), (32 * KIB, Get, Get)]),
        ("ibvdev", ZeroCopy, STRIDED, &[(1, Bounce, Frames), (16 * MIB + 1, Frames, Frames)]),
        ("ibvdev", Buffered, LENT_BLOCK, &[(32 * KIB - 1, Frames, Frames), (32 * KIB, Get, Get)]),
        ("niodev", ZeroCopy, USER, &[(1, Frames, Frames), (MIB, Frames, Frames)]),
        ("full", Auto, STRIDED, &[(32 * KIB - 1, Frames, Frames), (32 * KIB, Bounce, Get), (256 * KIB, Get, Get)]),
    ];
    for &(device, path, memory, rows) in table {
        for &(bytes, with_block, without) in rows {
            let caps = caps(device);
            let found =
                [true, false].map(|can_bounce| receive_path(&caps, body(path, memory, bytes), can_bounce));
            assert_eq!(found, [with_block, without], "{device}, {path:?}, {memory:?}, {bytes} bytes");
        }
    }
}

#[test]
fn requested_bodies_are_split_into_the_longest_pieces_of_their_path() {
    let full = full();
    for (path, bytes, is_zcopy) in [
        (Auto, 4 * KIB - 1, false),
        (Auto, 4 * KIB, true),
        (Buffered, 4 * KIB - 1, false),
        (ZeroCopy, 1, true),
        (ZeroCopy, 0, false),
    ] {
        assert_eq!(sends_zcopy(&full, body(path, USER, bytes)), is_zcopy, "{path:?}, {bytes} bytes");
    }
    let contiguous_only = Caps { noncontiguous: false, ..full.clone() };
    assert!(!sends_zcopy(&contiguous_only, body(ZeroCopy, STRIDED, MIB)));
    for (is_zcopy, left, len) in [
        (false, 100, 100),
        (false, MIB, 64 * KIB),
        (true, MIB, 6 * KIB),
        // The last piece goes the same way, although it is shorter than the minimum for a body.
        (true, 100, 100),
    ] {
        assert_eq!(piece_len(&full, is_zcopy, left), len);
    }
    assert_eq!(piece_len(&caps("niodev"), false, MIB), 256 * KIB);
    assert_eq!([10, 3 * MIB].map(|left| get_len(&full, left)), [10, MIB]);
    assert_eq!(get_len(&caps("niodev"), 10), 0);
}

/// Calls `check` with every combination of a device, a path, memory and a length near a threshold.
fn for_all(check: impl Fn(&Caps, LocalBody, Memory)) {
    for caps in DEVICES.map(caps) {
        let get = caps.get.map_or(0, |sizes| sizes.min);
        let thresholds = [
            0,
            caps.eager_limit,
            get,
            caps.register_min.unwrap_or(0),
            caps.export_min.unwrap_or(0),
            MAX_BOUNCE,
        ];
        let lengths = thresholds.into_iter().flat_map(|at| [at.saturating_sub(1), at, at.saturating_add(1)]);
        for bytes in lengths.filter(|bytes| *bytes <= isize::MAX as usize) {
            for path in [Auto, Buffered, ZeroCopy] {
                ALL_MEMORY.into_iter().for_each(|memory| check(&caps, body(path, memory, bytes), memory));
            }
        }
    }
}

#[test]
fn senders_keep_the_rules_of_each_data_path() {
    for_all(|caps, body, memory| {
        let can_export = || memory.can_export;
        let eager = |credit| is_eager(caps, body, credit, can_export);
        let cost = credit_cost(body.bytes);
        assert!(!eager(cost - 1), "{body:?} is eager without credit");
        assert_eq!(eager(cost), eager(CREDIT));
        assert!(
            eager(cost) || !is_eager(caps, body, cost, || true),
            "the fast path sends {body:?} eagerly, the slow path does not"
        );
        let is_short = body.bytes <= caps.eager_limit;
        let is_supported = caps.noncontiguous || body.is_contiguous;
        let is_exported = body.in_region
            && body.is_owned
            && memory.can_export
            && caps.export_min.is_some_and(|min| body.bytes >= min);
        let bounce = send_bounce(caps, body);
        match body.path {
            Auto => assert_eq!(eager(cost), is_short && !is_exported, "{body:?}"),
            Buffered => {
                assert_eq!(eager(cost), is_short, "{body:?}");
                assert_eq!(bounce == Bounce::Always, body.bytes > 0);
            }
            ZeroCopy => {
                let is_got = caps.get.is_some() && is_supported && body.bytes > 0;
                assert_eq!(eager(cost), is_short && !is_got && !is_exported, "{body:?}");
                assert!(bounce == Bounce::No || !is_supported, "{body:?} is copied");
            }
        }
        assert!(body.path == Buffered || bounce != Bounce::Always);
        assert!(bounce != Bounce::IfAvailable || caps.register_min.is_some() && !is_short);
        let paths =
            [Mode::Standard, Mode::Synchronous].map(|mode| send_path(caps, body, cost, mode, can_export));
        match paths {
            [SendPath::Eager, SendPath::EagerSync] => assert!(eager(cost)),
            [SendPath::Rendezvous { export, register }, other] => {
                assert!(!eager(cost) && other == paths[0]);
                assert!(!export || (body.is_owned && caps.export_min.is_some()));
                assert!(!register || (caps.get.is_some() && is_supported && body.bytes > 0));
            }
            paths => panic!("{paths:?}"),
        }
    });
}

#[test]
fn receivers_keep_the_rules_of_each_data_path() {
    for_all(|caps, body, _| {
        let is_supported = caps.noncontiguous || body.is_contiguous;
        for can_bounce in [true, false] {
            let path = receive_path(caps, body, can_bounce);
            match path {
                ReceivePath::GetIntoBounce => {
                    assert!(can_bounce && caps.register_min.is_some() && body.bytes <= MAX_BOUNCE);
                    assert!(body.path == Auto || !is_supported, "{body:?} is copied");
                }
                ReceivePath::Get => assert!(is_supported),
                ReceivePath::Frames => (),
            }
            assert!(path == ReceivePath::Frames || (caps.get.is_some() && body.bytes > 0));
            // A receiver with the same memory and path as a sender that registered the body gets it.
            let registers = send_path(caps, body, 0, Mode::Standard, || false);
            if let SendPath::Rendezvous { register: true, .. } = registers {
                assert_ne!(path, ReceivePath::Frames, "{body:?}");
            }
        }
    });
}

//! Tests of PMIx with servers that follow a script.

mod get_reply;
mod job_info;
mod jobs;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::client::PmixClient;
use super::frames::{MAX_BODY, PmixFrames, frame};
use super::packer::Packer;
use super::server::ServerAddress;
use crate::boot::managed::ProcessManager;
use job_info::{job, kval};

/// The time that clients of these tests wait for servers that send nothing.
const SHORT: Duration = Duration::from_secs(1);

const LONG: Duration = Duration::from_secs(60);

/// Starts a server that runs `serve` for one client. The client is rank 1 of job `ns@1`.
fn server(serve: impl FnOnce(TcpStream) + Send + 'static) -> (ServerAddress, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let served = std::thread::spawn(move || serve(listener.accept().unwrap().0));
    let uri = format!("srv.0;tcp4://{address}");
    (ServerAddress { uri, address, namespace: "ns@1".into(), rank: 1, version: "4.2.2".into() }, served)
}

/// Reads what a client states in the handshake.
fn hello(stream: &mut TcpStream) -> Vec<u8> {
    let mut header = [0; 16];
    stream.read_exact(&mut header).unwrap();
    let (marks, len) = header.split_at(8);
    assert_eq!(marks, [0xff; 8]);
    let mut hello = vec![0; u64::from_ne_bytes(len.try_into().unwrap()) as usize];
    stream.read_exact(&mut hello).unwrap();
    hello
}

/// Accepts a client as client 7. Returns what it has stated.
fn accept(stream: &mut TcpStream) -> Vec<u8> {
    let hello = hello(stream);
    stream.write_all(&[0, 0, 0, 0, 0, 0, 0, 7]).unwrap();
    hello
}

/// Returns the tag and the body of the next request, or `None` at the end of the connection.
fn request(stream: &mut TcpStream) -> Option<(u32, Vec<u8>)> {
    let mut header = [0; 16];
    stream.read_exact(&mut header).ok()?;
    let word = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().unwrap());
    let len = u64::from_ne_bytes(header[8..].try_into().unwrap());
    let mut body = vec![0; u32::from_be(len as u32) as usize];
    stream.read_exact(&mut body).ok()?;
    assert_eq!(word(0), 7);
    Some((word(4), body))
}

/// Replies to the next request, which must have this body.
fn reply(stream: &mut TcpStream, wanted: &[u8], body: &[u8]) {
    let (tag, found) = request(stream).unwrap();
    assert_eq!(found, wanted);
    stream.write_all(&frame(7, tag, body)).unwrap();
}

const OK: [u8; 8] = [0, 0, 0, 1, 0, 0, 0, 0];

const JOB_INFO: [u8; 5] = [0, 0, 0, 1, 0];

#[test]
fn requests_have_the_form_of_the_protocol() {
    let (at, served) = server(|mut stream| {
        let hello = accept(&mut stream);
        let user = rustix::process::geteuid().as_raw().to_ne_bytes();
        let group = rustix::process::getegid().as_raw().to_ne_bytes();
        let parts: [&[u8]; 7] = [
            b"native\0\0\0\0\x08",
            &user,
            &group,
            b"\0ns@1\0",
            &[0, 0, 0, 1],
            b"4.2.2\0v21\0\x01",
            b"hash\0",
        ];
        assert_eq!(hello, parts.concat());
        reply(&mut stream, &JOB_INFO, &job(&[0, 0, 1]));
        // Commit: the scope, and a buffer with one key.
        let values = kval("card", 3, b"\0\0\0\x04abc\0");
        let buffer =
            [&[0, 0, 0, 1, 1, 0, 15, 0, 0, 0, 0, 0, 0, 0], &[values.len() as u8][..], &values].concat();
        reply(&mut stream, &[&[0, 0, 0, 1, 2, 0, 0, 0, 1, 3], &*buffer].concat(), &OK);
        // Fence: all ranks, with their values. An event comes first, in pieces.
        let one = [0, 0, 0, 1, 0, 15, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1];
        let procs = [&one[..], b"\0\0\0\x05ns@1\0\xff\xff\xff\xfe"].concat();
        let infos = [&one[..], b"\0\0\0\x0dpmix.collect\0\0\0\0\0\0\x01\x01"].concat();
        let (tag, found) = request(&mut stream).unwrap();
        assert_eq!(found, [&[0, 0, 0, 1, 3], &*procs, &*infos].concat());
        for byte in [frame(7, 0, b"an event"), frame(7, tag, &OK)].concat() {
            stream.write_all(&[byte]).unwrap();
        }
        // Get: namespace, rank 0, no information, key.
        let owner = Packer::default().proc("ns@1", 0).kval_string("other", "x").kval_string("card", "abc");
        let get =
            b"\0\0\0\x01\x04\0\0\0\x01\0\0\0\x05ns@1\0\0\0\0\x01\0\0\0\0\0\0\0\x01\0\x0f\0\0\0\0\0\0\0\0\
                    \0\0\0\x01\0\0\0\x05card\0";
        reply(&mut stream, get, &Packer::default().status(0).object(&owner.finish()).finish());
        reply(&mut stream, b"\0\0\0\x01\x05\0\0\0\x01\0\x0f\0\0\0\0\0\0\0\0", &OK);
        // Abort has no reply.
        let abort =
            b"\0\0\0\x01\x01\0\0\0\x01\0\0\0\x2a\0\0\0\x01\0\0\0\x04mpj\0\0\0\0\x01\0\x0f\0\0\0\0\0\0\0\0";
        assert_eq!(request(&mut stream).unwrap().1, abort);
    });
    let mut client = PmixClient::connect(&at, LONG).unwrap();
    assert_eq!((client.rank(), client.size(), client.hosts().unwrap().count()), (1, 3, 2));
    assert!(client.job().starts_with("ns@1 srv.0;tcp4://127.0.0.1:"), "{}", client.job());
    client.put("card", "abc").unwrap();
    client.fence(LONG).unwrap();
    assert_eq!(client.get("card"), Ok("abc".into()));
    client.finalize().unwrap();
    client.abort(42).unwrap();
    served.join().unwrap();
    let gone = Instant::now();
    while client.poll().is_ok() {
        assert!(gone.elapsed() < LONG, "the end of the server was not noticed");
    }
}

#[test]
fn rank_that_never_starts_is_an_error() {
    let (at, served) = server(|mut stream| {
        accept(&mut stream);
        reply(&mut stream, &JOB_INFO, &job(&[0, 0, 1]));
        request(&mut stream).unwrap();
        assert_eq!(request(&mut stream), None);
    });
    let mut client = PmixClient::connect(&at, LONG).unwrap();
    let why = client.fence(Duration::from_millis(250)).unwrap_err();
    let start = "the PMIx server has not sent a reply to Fence for 0.25 s: a rank has not called mpj::run";
    assert!(why.starts_with(start), "{why}");
    drop(client);
    served.join().unwrap();
}

#[test]
fn poll_returns_although_the_server_sends_without_a_pause() {
    let (at, served) = server(|mut stream| {
        accept(&mut stream);
        reply(&mut stream, &JOB_INFO, &job(&[0, 0]));
        while stream.write_all(&frame(7, 0, &[0; 60_000])).is_ok() {}
    });
    let mut client = PmixClient::connect(&at, LONG).unwrap();
    for _ in 0..100 {
        assert_eq!(client.poll(), Ok(Vec::new()));
    }
    drop(client);
    served.join().unwrap();
}

/// Asserts that a client of this server reports an error with this text.
fn assert_fails(limit: Duration, serve: fn(&mut TcpStream), why: &str) {
    let (at, served) = server(move |mut stream| {
        serve(&mut stream);
        // Wait until the client closes the connection, and ignore the requests that it sends before.
        drop(stream.read_to_end(&mut Vec::new()));
    });
    let error = PmixClient::connect(&at, limit).unwrap_err();
    assert!(error.contains(why), "{why}: {error}");
    served.join().unwrap();
}

fn end(stream: &TcpStream) {
    stream.shutdown(Shutdown::Write).unwrap();
}

#[test]
fn servers_that_refuse_the_handshake_are_errors() {
    let closed =
        "the PMIx server has closed the connection in the handshake: it does not know rank 1 of job ns@1";
    assert_fails(LONG, |stream| drop((hello(stream), end(stream))), closed);
    assert_fails(LONG, |stream| drop((stream.write_all(&[0, 0]), end(stream))), closed);
    assert_fails(
        LONG,
        |stream| stream.write_all(&(-47i32).to_be_bytes()).unwrap(),
        "the PMIx server sent error -47 in the handshake; mpj uses the encoding v21, the store hash, and the \
         security module native (not munge)",
    );
    assert_fails(
        LONG,
        |stream| stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap(),
        "the PMIx server sent error 1213486160 in the handshake",
    );
}

#[test]
fn servers_that_stop_in_the_middle_are_errors() {
    assert_fails(SHORT, |_| (), "the PMIx server has not sent the handshake for 1 s");
    assert_fails(
        SHORT,
        |stream| {
            accept(stream);
            let (tag, _) = request(stream).unwrap();
            let bytes = frame(7, tag, &job(&[0, 0]));
            stream.write_all(&bytes[..bytes.len() - 1]).unwrap();
        },
        "the PMIx server has not sent a reply to JobInfo for 1 s",
    );
    // A server that slowly sends single bytes has no more time than one that is silent.
    assert_fails(
        SHORT,
        |stream| {
            accept(stream);
            let begun = Instant::now();
            while stream.write_all(&[0]).is_ok() {
                assert!(begun.elapsed() < LONG);
                std::thread::sleep(SHORT / 20);
            }
        },
        "the PMIx server has not sent a reply to JobInfo for 1 s",
    );
    assert_fails(
        LONG,
        |stream| {
            accept(stream);
            let (tag, _) = request(stream).unwrap();
            let mut bytes = frame(7, tag, b"");
            bytes[8..].copy_from_slice(&length_field(u32::MAX));
            stream.write_all(&bytes).unwrap();
        },
        "the PMIx server sent a message of 4294967295 bytes, but the limit is 67108864",
    );
    assert_fails(
        LONG,
        |stream| {
            accept(stream);
            request(stream).unwrap();
            end(stream);
        },
        "the PMIx server has exited or closed its connection",
    );
}

#[test]
fn invalid_replies_are_errors() {
    let status = |status| Packer::default().status(status).finish();
    let object = |bytes: &[u8]| Packer::default().status(0).object(bytes).finish();
    let owner = |key, value| Packer::default().proc("ns@1", 0).kval_string(key, value).finish();
    for (body, why) in [
        (status(-46), "error -46 in reply to Get"),
        (status(0), "a message with 0 bytes where 1 bytes were expected"),
        (Vec::new(), "a message with 0 bytes where 4 bytes were expected"),
        (vec![0, 0, 0, 2, 0, 0, 0, 0], "an item with 2 elements instead of one"),
        (object(b""), "a message with 0 bytes where 4 bytes were expected"),
        (object(&owner("other", "x")), "no value of card"),
        (
            [&OK[..], &[0, 0, 0, 1, 0, 15, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]].concat(),
            "a message with 0 bytes where 18446744073709551615 bytes were expected",
        ),
        ([&OK[..], &[0, 0, 0, 1, 0, 3, 0]].concat(), "a number of type 3, which is not an integer"),
    ] {
        let (at, served) = server(move |mut stream| {
            accept(&mut stream);
            reply(&mut stream, &JOB_INFO, &job(&[0, 0]));
            let (tag, _) = request(&mut stream).unwrap();
            stream.write_all(&frame(7, tag, &body)).unwrap();
        });
        let error = PmixClient::connect(&at, LONG).unwrap().get("card").unwrap_err();
        assert_eq!(error, format!("the PMIx server sent {why}"));
        served.join().unwrap();
    }
    let (at, served) = server(|mut stream| {
        accept(&mut stream);
        reply(&mut stream, &JOB_INFO, &job(&[0]));
    });
    let error = PmixClient::connect(&at, LONG).unwrap_err();
    assert_eq!(error, "the PMIx server sent a job of 1 ranks to rank 1");
    served.join().unwrap();
}

/// Returns the length in the header of a frame.
fn length_field(len: u32) -> [u8; 8] {
    u64::from(len.to_be()).to_ne_bytes()
}

#[test]
fn frames_are_assembled_from_pieces_of_any_length() {
    let wire = [frame(7, 101, b"first"), frame(7, 0, b""), frame(7, 102, b"x")].concat();
    for piece in 1..=wire.len() {
        let (mut decoder, mut found) = (PmixFrames::default(), Vec::new());
        for bytes in wire.chunks(piece) {
            decoder.push(bytes);
            found.extend(std::iter::from_fn(|| decoder.next_frame().unwrap()));
        }
        assert_eq!(found, [(101, b"first".to_vec()), (0, vec![]), (102, b"x".to_vec())], "{piece}");
    }
    let mut decoder = PmixFrames::default();
    let mut header = frame(7, 101, b"");
    header[8..].copy_from_slice(&length_field(MAX_BODY as u32 + 1));
    decoder.push(&header);
    assert!(decoder.next_frame().unwrap_err().contains("but the limit is"));
}

#[test]
fn variables_of_a_server_are_read() {
    let read = |variables: &[(&str, &str)]| {
        ServerAddress::from_variables(|name| {
            variables.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned())
        })
    };
    let job = [("PMIX_NAMESPACE", "ns"), ("PMIX_RANK", "3")];
    for (name, uri, address) in [
        ("PMIX_SERVER_URI41", "a.0;tcp4://127.0.0.1:5000", "127.0.0.1:5000"),
        ("PMIX_SERVER_URI2", "pmix-server.77;tcp6://::1:5000", "[::1]:5000"),
        ("PMIX_SERVER_URI3", "x;tcp6://[::1]:5000", "[::1]:5000"),
    ] {
        let server = read(&[&job[..], &[(name, uri), ("PMIX_SECURITY_MODE", "munge,native")]].concat());
        let server = server.unwrap().unwrap();
        assert_eq!((&*server.namespace, server.rank, server.address), ("ns", 3, address.parse().unwrap()));
    }
    assert_eq!(read(&[("PMIX_RANK", "0")]), Ok(None));
    let uri = ("PMIX_SERVER_URI4", "a.0;tcp4://127.0.0.1:5000");
    for (variables, why) in [
        (&[("PMIX_NAMESPACE", "ns")][..], "PMIX_NAMESPACE is set, but not PMIX_RANK; if the variables"),
        (&job[..], "PMIX_NAMESPACE is set, but not PMIX_SERVER_URI4"),
        (&[("PMIX_NAMESPACE", "ns"), ("PMIX_RANK", "x"), uri], "PMIX_RANK=x is not a number"),
        (
            &[job[0], job[1], ("PMIX_SERVER_URI4", "a.0;usock:/x")],
            "PMIX_SERVER_URI4=a.0;usock:/x is not an address",
        ),
        (&[job[0], job[1], ("PMIX_SERVER_URI2", "a;tcp4://h:1")], "is not an address of a PMIx server"),
        (&[job[0], job[1], uri, ("PMIX_SECURITY_MODE", "munge")], "requires the security module munge"),
    ] {
        let error = read(variables).unwrap_err();
        assert!(error.contains(why), "{variables:?}: {error}");
    }
}

//! Tests of PMI-1 with process managers that follow a script.

mod jobs;

use std::io::{BufRead, BufReader, Lines, Write};
use std::net::{Shutdown, TcpListener};
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::Duration;

use mpj_devices::HostId;

use super::client::PmiClient;
use super::mapping::place;
use super::message::{LineDecoder, MAX_LINE, MAX_REQUEST, MAX_VALUE_LEN, PmiReply, request};
use crate::boot::managed::ProcessManager;

const LONG: Duration = Duration::from_secs(60);

/// A script: the requests of the client, and the reply to each.
type Script<'a> = &'a [(&'a str, &'a str)];

const INIT: [(&str, &str); 2] = [
    ("cmd=init pmi_version=1 pmi_subversion=1", "cmd=response_to_init pmi_version=1 pmi_subversion=2 rc=0\n"),
    ("cmd=get_my_kvsname", "cmd=my_kvsname kvsname=kvs_7\n"),
];

/// Replies to the requests of [`INIT`]. Returns the requests that follow.
fn serve_init(mut ours: &UnixStream) -> Lines<BufReader<&UnixStream>> {
    let mut requests = BufReader::new(ours).lines();
    for (wanted, reply) in INIT {
        assert_eq!(requests.next().unwrap().unwrap(), wanted);
        ours.write_all(reply.as_bytes()).unwrap();
    }
    requests
}

/// Starts a process manager that checks each request and sends its reply, and then closes the connection.
fn server(script: Script<'_>) -> (UnixStream, JoinHandle<()>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let script: Vec<(String, String)> = script.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect();
    let serve = move || {
        let mut requests = BufReader::new(&ours).lines();
        for (wanted, reply) in script {
            assert_eq!(requests.next().unwrap().unwrap(), wanted);
            (&ours).write_all(reply.as_bytes()).unwrap();
        }
    };
    (theirs, std::thread::spawn(serve))
}

/// Joins at a process manager with this script, and then calls `run`.
fn with<T>(script: Script<'_>, run: impl FnOnce(&mut PmiClient) -> Result<T, String>) -> Result<T, String> {
    let (socket, served) = server(script);
    let outcome = PmiClient::inherited(socket, 1, 4).and_then(|mut client| run(&mut client));
    served.join().unwrap();
    outcome
}

fn joined<T>(more: Script<'_>, run: impl FnOnce(&mut PmiClient) -> Result<T, String>) -> Result<T, String> {
    with(&[&INIT[..], more].concat(), run)
}

#[test]
fn requests_have_the_form_of_the_protocol() {
    let script = [
        (
            "cmd=get kvsname=kvs_7 key=PMI_process_mapping",
            "value=(vector,(0,1,4)) rc=0 cmd=get_result tag=9\n",
        ),
        ("cmd=put kvsname=kvs_7 key=card-0 value=1:abc", "cmd=put_result rc=0 msg=success\n"),
        ("cmd=barrier_in", "cmd=barrier_out\n"),
        ("cmd=get kvsname=kvs_7 key=card-0", "cmd=get_result rc=0 msg=all is well value=1:abc\n"),
        ("cmd=finalize", "cmd=finalize_ack\n"),
        ("cmd=abort exitcode=42", ""),
    ];
    let outcome = joined(&script, |client| {
        assert_eq!((client.rank(), client.size(), client.job()), (1, 4, "kvs_7"));
        assert_eq!(client.hosts()?.runs().collect::<Vec<_>>(), [(HostId(0), 0..4)]);
        client.put("card", "abc")?;
        client.fence(LONG)?;
        assert_eq!(client.get("card")?, "abc");
        client.finalize()?;
        client.abort(42)
    });
    assert_eq!(outcome, Ok(()));
}

#[test]
fn long_values_are_cut_into_segments() {
    let value = "x".repeat(MAX_VALUE_LEN) + "end";
    let (first, second) = value.split_at(MAX_VALUE_LEN - 2);
    let put = |at, text| format!("cmd=put kvsname=kvs_7 key=k-{at} value=2:{text}");
    let get = |at| format!("cmd=get kvsname=kvs_7 key=k-{at}");
    let got = |text| format!("cmd=get_result rc=0 value=2:{text}\n");
    let (ok, puts) = ("cmd=put_result rc=0\n", [put(0, first), put(1, second)]);
    let (gets, replies) = ([get(0), get(1)], [got(first), got(second)]);
    assert!(puts.iter().all(|line| line.len() < MAX_REQUEST));
    let script = [(&*puts[0], ok), (&*puts[1], ok), (&*gets[0], &*replies[0]), (&*gets[1], &*replies[1])];
    let outcome = joined(&script, |client| {
        client.put("k", &value)?;
        client.get("k")
    });
    assert_eq!(outcome, Ok(value));
    let why = joined(&[], |client| client.put("k", &"x".repeat(10 * MAX_VALUE_LEN))).unwrap_err();
    assert_eq!(why, "the value of k has 5120 bytes, but the limit is 4080");
    let why = joined(&[], |client| client.put("k", "two words")).unwrap_err();
    assert_eq!(why, "the value of value for put is empty or has a space, a control character or ';'");
}

#[test]
fn invalid_replies_to_init_are_errors() {
    let long = "x".repeat(MAX_LINE + 1);
    for (reply, why) in [
        ("", "the process manager has exited or closed its connection"),
        ("cmd=response_to_init pmi_ver", "the process manager has exited or closed its connection"),
        ("HTTP/1.1 400 Bad Request\r\n", "the process manager sent 'HTTP/1.1' instead of a field"),
        ("\n", "the process manager sent a line without a command instead of 'response_to_init'"),
        ("cmd=barrier_out\n", "the process manager sent 'barrier_out' instead of 'response_to_init'"),
        ("cmd=response_to_init\n", "the process manager sent no pmi_version"),
        (
            "cmd=response_to_init pmi_version=2 rc=0\n",
            "the process manager sent version 2 of PMI, but this process uses version 1",
        ),
        (
            "cmd=response_to_init pmi_version=99999999999\n",
            "the process manager sent pmi_version=99999999999, which is not a valid number",
        ),
        (
            "cmd=response_to_init rc=-1 msg=version not supported\n",
            "the process manager sent error -1 for response_to_init: version not supported",
        ),
        (&long, "the process manager sent a line of more than 16384 bytes"),
    ] {
        let outcome = with(&[(INIT[0].0, reply)], |_| Ok(()));
        assert_eq!(outcome.unwrap_err(), why, "{reply:.100}");
    }
}

/// Connects to a process manager at a port, which sends this text, repeatedly if `is_endless`, and then only reads.
fn connect_to(text: String, is_endless: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().to_string();
    let served = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        // The client closes its end at the first error.
        while stream.write_all(text.as_bytes()).is_ok() && is_endless {}
        let _ = stream.shutdown(Shutdown::Write);
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let why = PmiClient::connect(&port, "0").unwrap_err();
    served.join().unwrap();
    why
}

#[test]
fn hostile_pmi_port_servers_are_errors() {
    let set = |fields: &[&str]| {
        fields.iter().fold("cmd=initack\n".to_owned(), |text, field| text + "cmd=set " + field + "\n")
    };
    let closed = "the process manager has exited or closed its connection";
    for (text, why) in [
        (String::new(), closed),
        ("cmd=initack\n".into(), closed),
        (set(&["size=4", "rank=1"]), closed),
        (set(&["size=4", "rank=1", "debug=0"]), closed),
        ("HTTP/1.1 400 Bad Request\r\n".into(), "the process manager sent 'HTTP/1.1' instead of a field"),
        ("cmd=initack rc=1 msg=no\n".into(), "the process manager sent error 1 for initack: no"),
        ("cmd=initack\ncmd=barrier_out\n".into(), "the process manager sent 'barrier_out' instead of 'set'"),
        (set(&["size=0", "rank=0", "debug=0"]), "the process manager sent rank 0 of 0 ranks"),
        (set(&["rank=0", "debug=0", "a=b"]), "the process manager sent rank 0 of 0 ranks"),
        (set(&["size=4", "debug=0", "a=b"]), "the process manager sent no rank"),
        (set(&["size=4", "rank=4", "debug=0"]), "the process manager sent rank 4 of 4 ranks"),
        (
            set(&["size=4", "rank=-1", "debug=0"]),
            "the process manager sent rank=-1, which is not a valid number",
        ),
        (
            set(&["size=99999999999"]),
            "the process manager sent size=99999999999, which is not a valid number",
        ),
    ] {
        assert_eq!(connect_to(text.clone(), false), why, "{text}");
    }
    for (text, why) in [
        ("x".repeat(4096), "the process manager sent a line of more than 16384 bytes"),
        (set(&["size=4"]), "the process manager sent 'initack' instead of 'set'"),
        ("cmd=initack\n".into(), "the process manager sent 'initack' instead of 'set'"),
    ] {
        assert_eq!(connect_to(text.clone(), true), why, "{text:.100}");
    }
}

#[test]
fn end_after_an_unsolicited_line_is_noticed() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let served = std::thread::spawn(move || {
        let _requests = serve_init(&ours);
        (&ours).write_all(b"cmd=barrier_out\n").unwrap();
    });
    let mut client = PmiClient::inherited(theirs, 1, 4).unwrap();
    served.join().unwrap();
    let begun = std::time::Instant::now();
    while client.poll().is_ok() {
        assert!(begun.elapsed() < LONG && !client.sockets().is_empty(), "the end is not noticed");
    }
}

#[test]
fn invalid_values_are_errors() {
    let get = "cmd=get kvsname=kvs_7 key=k-0";
    for (reply, why) in [
        ("cmd=get_result rc=0\n", "the process manager sent no value of k-0"),
        ("cmd=get_result rc=0 value=abc\n", "the process manager sent an invalid value of k"),
        (
            "cmd=get_result rc=0 value=99999999999999999999:a\n",
            "the process manager sent an invalid value of k",
        ),
        ("cmd=get_result rc=1 msg=key_k-0_not_found\n", "error 1 for get_result: key_k-0_not_found"),
    ] {
        let error = joined(&[(get, reply)], |client| client.get("k")).unwrap_err();
        assert!(error.contains(why), "{reply}: {error}");
    }
    // A value that claims to have 1,000 segments.
    let gets: Vec<String> = (0..8).map(|at| format!("cmd=get kvsname=kvs_7 key=k-{at}")).collect();
    let script: Vec<_> = gets.iter().map(|get| (&**get, "cmd=get_result rc=0 value=1000:a\n")).collect();
    let why = joined(&script, |client| client.get("k")).unwrap_err();
    assert_eq!(why, "the process manager sent a value with 1000 segments of k");
    let socket = UnixStream::pair().unwrap().0;
    let why = PmiClient::inherited(socket, 4, 4).unwrap_err();
    assert_eq!(why, "the process manager sent rank 4 of 4 ranks");
}

#[test]
fn lines_are_assembled_from_pieces_of_any_length() {
    let text = b"cmd=a\n\ncmd=b c=d e\n";
    for piece in 1..=text.len() {
        let (mut decoder, mut lines) = (LineDecoder::default(), Vec::new());
        for bytes in text.chunks(piece) {
            decoder.push(bytes);
            lines.extend(std::iter::from_fn(|| decoder.take_line().unwrap()));
        }
        assert_eq!(lines, [b"cmd=a".to_vec(), vec![], b"cmd=b c=d e".to_vec()], "{piece}");
    }
    let reply = PmiReply::parse(b"cmd=b  c=d e=f g x=").unwrap();
    let fields = ["cmd", "c", "e", "x", "y"].map(|key| reply.get(key));
    assert_eq!(fields, [Some("b"), Some("d"), Some("f g"), Some(""), None]);
    assert!(PmiReply::parse(&[b'a', b'=', 0xff]).is_err());
    assert!(request("put", &[("key", &"k".repeat(MAX_REQUEST))]).unwrap_err().contains("the limit is 1000"));
    assert!(request("put", &[("key", "a\nb")]).is_err() && request("put", &[("key", "a;b")]).is_err());
}

#[test]
fn maps_of_known_process_managers_are_placed() {
    for (map, size, runs) in [
        ("(vector,(0,1,4))", 4, &[(0, 4)][..]),
        ("(vector,(0,3,2))", 6, &[(0, 2), (1, 2), (2, 2)]),
        // The list starts again: Hydra 4 with four ranks on one host.
        ("(vector,(0,1,1))", 4, &[(0, 4)]),
        ("(vector,(0,2,1))", 5, &[(0, 1), (1, 1), (0, 1), (1, 1), (0, 1)]),
        ("(vector,(0,1,4),(1,2,1))", 6, &[(0, 4), (1, 1), (2, 1)]),
        // Slurm with cyclic placement.
        ("(vector,(0,3,1),(0,1,1),(0,1,1))", 5, &[(0, 1), (1, 1), (2, 1), (0, 2)]),
        // MPICH 5.
        ("(vector,[(0,3,1)]x2,0)", 7, &[(0, 1), (1, 1), (2, 1), (0, 1), (1, 1), (2, 1), (0, 1)]),
        ("(vector,0,(1,1,3),(2,1,2))", 6, &[(0, 1), (1, 3), (2, 2)]),
        ("(vector,[0,[1]x2]x2)", 6, &[(0, 1), (1, 2), (0, 1), (1, 2)]),
        // Numbers of hosts follow the order of their first rank, and the last run can be cut.
        ("(vector,(7,1,2),(3,2,2))", 5, &[(0, 2), (1, 2), (2, 1)]),
        ("(vector,(0,1,4294967295))", 3, &[(0, 3)]),
        ("(vector,[(0,1,1)]x4294967295)", 3, &[(0, 3)]),
    ] {
        assert_eq!(place(map, size).as_deref(), Ok(runs), "{map}");
    }
}

#[test]
fn invalid_maps_are_rejected() {
    let nested = format!("(vector,{}0{})", "[".repeat(40), "]x2".repeat(40));
    for map in [
        "",
        "(vector)",
        "(vector,)",
        "vector,(0,1,1)",
        "(vector,(0,1))",
        "(vector,(0,1,1)",
        "(vector,(0,1,1)) ",
        "(vector,(0,-1,1))",
        "(vector,(0,1,99999999999))",
        "(vector,[(0,1,1)])",
        "(vector,[(0,1,1)]x)",
        "(vector,[]x3)",
        &nested,
        // Maps that place no rank, for ever.
        "(vector,(0,0,1))",
        "(vector,(0,1,0))",
        "(vector,[(0,1,0)]x4294967295)",
        "(vector,[(0,1,1)]x0)",
    ] {
        let why = place(map, 4).unwrap_err();
        assert!(why.starts_with("the process manager's map of ranks to hosts is invalid ("), "{map}: {why}");
    }
}

#[test]
fn rank_that_never_starts_is_an_error() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let served = std::thread::spawn(move || {
        let requests = serve_init(&ours);
        requests.map(Result::unwrap).collect::<Vec<_>>()
    });
    let mut client = PmiClient::inherited(theirs, 1, 4).unwrap();
    let why = client.fence(Duration::from_millis(250)).unwrap_err();
    let start = "the process manager has sent no 'barrier_out' for 0.25 s: a rank has not called mpj::run";
    assert!(why.starts_with(start), "{why}");
    drop(client);
    assert_eq!(served.join().unwrap(), ["cmd=barrier_in"]);
}

/// A server that sends a byte before each read times out does not extend the limit.
#[test]
fn reply_in_single_bytes_is_limited() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let served = std::thread::spawn(move || {
        let _requests = serve_init(&ours);
        while (&ours).write_all(b"x").is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let mut client = PmiClient::inherited(theirs, 1, 4).unwrap();
    let why = client.fence(Duration::from_millis(250)).unwrap_err();
    assert!(why.starts_with("the process manager has sent no 'barrier_out' for 0.25 s"), "{why}");
    drop(client);
    served.join().unwrap();
}

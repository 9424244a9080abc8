//! Input, output and environment of jobs.

use std::process::Stdio;
use std::time::Instant;

use crate::Test;
use crate::job::{feed, limit, mpjrun, run, run_sh, watch};
use crate::usage::sh;

pub(crate) const TESTS: &[Test] = &[
    ("lines_are_not_mixed", lines_are_not_mixed),
    ("labels_name_the_rank", labels_name_the_rank),
    ("input_goes_to_rank_0", input_goes_to_rank_0),
    ("ranks_get_the_environment_and_x_variables", ranks_get_the_environment_and_x_variables),
    ("long_and_binary_output_arrives", long_and_binary_output_arrives),
    ("closed_output_ends_the_job_silently", closed_output_ends_the_job_silently),
    ("failed_writes_of_output_are_reported", failed_writes_of_output_are_reported),
    (
        "process_that_outlives_the_job_does_not_delay_its_end",
        process_that_outlives_the_job_does_not_delay_its_end,
    ),
    ("slow_reader_gets_all_output_of_the_ranks", slow_reader_gets_all_output_of_the_ranks),
];

fn lines_are_not_mixed() {
    let ended = run("-n 4", "lines");
    assert_eq!((ended.code, ended.out.len()), (Some(0), 4 * 399), "{:?}", ended.err);
    for letter in "abcd".chars() {
        let own: Vec<usize> =
            ended.out.iter().filter(|line| line.starts_with(letter)).map(String::len).collect();
        assert_eq!(own, (1..400).collect::<Vec<_>>(), "of {letter}");
    }
    let pure = |line: &String| line.chars().all(|c| line.starts_with(c));
    assert!(ended.out.iter().all(pure));
    let mut last: Vec<&str> = ended.err.iter().map(String::as_str).collect();
    last.sort_unstable();
    assert_eq!(last, ["rank 0 is done", "rank 1 is done", "rank 2 is done", "rank 3 is done"]);
}

fn labels_name_the_rank() {
    for (args, labels) in
        [("-n 3 -l", &["[0] ", "[1] ", "[2] "][..]), ("-n 2 -l --devices smdev", &["[0-1] ", "[0-1] "])]
    {
        let mut ended = run(args, "fine");
        ended.out.sort();
        assert_eq!((ended.code, ended.out.len()), (Some(0), labels.len()), "{ended:#?}");
        for (line, label) in ended.out.iter().zip(labels) {
            assert!(line.starts_with(&format!("{label}rank ")), "{line}");
        }
    }
}

fn input_goes_to_rank_0() {
    for args in ["-n 3", "-n 3 --ranks-per-process 2"] {
        let mut command = mpjrun(args);
        command.arg(std::env::current_exe().unwrap()).args(["rank", "stdin"]).stdin(Stdio::piped());
        let (job, input) = watch(&mut command);
        feed(input, "eins\nzwei\n");
        let ended = job.end();
        assert_eq!((ended.code, ended.out.len()), (Some(0), 3), "{ended:#?}");
        let readers: Vec<&String> = ended.out.iter().filter(|line| line.contains("eins")).collect();
        assert_eq!(readers.len(), 1, "{ended:#?}");
        assert!(readers[0].contains(r#"read ["eins", "zwei"]"#), "{ended:#?}");
    }
}

fn ranks_get_the_environment_and_x_variables() {
    let mut command = mpjrun("-n 2 -x GREETING=hello=you -x MPJ_SPIN_US=3");
    command.arg(std::env::current_exe().unwrap()).args(["rank", "env"]);
    command.envs([("PMI_RANK", "7"), ("PMIX_RANK", "7"), ("MPJ_CONTROL", "3:4"), ("MPJ_YIELD_US", "500")]);
    let mut ended = watch(&mut command).0.end();
    ended.out.sort();
    assert_eq!((ended.code, ended.out.len()), (Some(0), 2), "{ended:#?}");
    for (rank, line) in ended.out.iter().enumerate() {
        let is_varying = |word: &&str| word.starts_with("MPJ_CONTROL=") || word.starts_with("MPJ_CORES=");
        let words: Vec<&str> = line.split(' ').filter(|word| !is_varying(word)).collect();
        let rank = format!("MPJ_RANK={rank}");
        let expected = ["GREETING=hello=you", &rank, "MPJ_SIZE=2", "MPJ_SPIN_US=3", "MPJ_YIELD_US=500"];
        assert_eq!(words[2..], expected, "{line}");
    }
}

fn long_and_binary_output_arrives() {
    // The line is longer than the longest one that `mpjrun` keeps together.
    let ended = run_sh("-n 2", "[ $MPJ_RANK = 0 ] || exit 0; head -c 5000000 /dev/zero; printf '\\377\\n'");
    assert_eq!((ended.code, ended.out.len()), (Some(0), 1));
    assert_eq!(ended.out[0].chars().filter(|c| *c == '\0').count(), 5_000_000);
}

/// The job ends silently when the reader of its output has exited, whether or not its ranks ignore SIGPIPE.
fn closed_output_ends_the_job_silently() {
    let ended = sh("{ $MPJRUN -n 2 yes; echo code $? >&2; } | head -n 3; echo done");
    assert_eq!(
        (&ended.out[..], &ended.err[..]),
        (&["y", "y", "y", "done"].map(String::from)[..], &["code 141".into()][..])
    );
    for rank in ["bash -c 'trap \"\" PIPE; while echo y; do :; done; exit 7'", "$RANKS rank endless"] {
        let ended = sh(&format!("{{ $MPJRUN -n 2 {rank}; echo code $? >&2; }} | head -n 3"));
        assert_eq!((ended.out.len(), &ended.err[..]), (3, &["code 141".into()][..]), "{rank}");
    }
}

/// The job continues without its output. Its exit code is 1 unless a rank fails.
fn failed_writes_of_output_are_reported() {
    let full = "cannot write to standard output: No space left on device";
    let ended = sh("exec $MPJRUN -n 3 $RANKS rank lines >/dev/full");
    ended.expect(1, &[full]);
    assert_eq!(ended.err.iter().filter(|line| line.ends_with("is done")).count(), 3, "{ended:#?}");
    let ended = sh("exec $MPJRUN -n 3 $RANKS rank exit7 >/dev/full");
    assert_eq!(ended.code, Some(7), "{ended:#?}");
    let ended = sh("exec $MPJRUN -n 2 sh -c 'echo oh >&2' 2>/dev/full");
    assert_eq!((ended.code, ended.out.len()), (Some(1), 0), "{ended:#?}");
    let ended = sh("file=$(mktemp); ulimit -f 1; $MPJRUN -n 2 seq 999 >$file; code=$?; rm $file; exit $code");
    ended.expect(1, &["cannot write to standard output: File too large"]);
}

/// `mpjrun` does not read the output of other processes for ever.
fn process_that_outlives_the_job_does_not_delay_its_end() {
    let begun = Instant::now();
    let child = "for i in $(seq 600); do sleep 0.1; echo $i || exit; done";
    let ended = run_sh("-n 2", &format!("setsid sh -c '{child}' & exit 0"));
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(begun.elapsed() < limit(20), "{:?}", begun.elapsed());
    // These children always have output, and the second reader takes it slowly.
    for reader in ["cat >/dev/null", "while [ $(head -c 10000 | wc -c) != 0 ]; do sleep 0.1; done"] {
        let job = "$MPJRUN -n 2 sh -c 'setsid yes & sleep 0.2; exit 0'";
        let begun = Instant::now();
        let ended = sh(&format!("{{ {job}; echo code $? >&2; }} | {reader}"));
        assert_eq!(ended.err, ["code 0"], "{reader}: {ended:#?}");
        assert!(begun.elapsed() < limit(10), "{reader}: {:?}", begun.elapsed());
    }
}

/// The reader takes the last output of the ranks after `mpjrun` has stopped reading the output of other processes.
fn slow_reader_gets_all_output_of_the_ranks() {
    let rank = "[ $MPJ_RANK = 0 ] || sleep 0.2; seq 10001 20000";
    let ended =
        sh(&format!("$MPJRUN -n 5 bash -c '{rank}' | {{ sleep 1; head -c 60000; sleep 3; exec cat; }}"));
    assert_eq!(ended.out.len(), 50_000, "{:?}", ended.err);
}

use super::*;

fn find_in(variables: &[(&str, &str)], is_requested: bool) -> Result<Option<Found>, String> {
    let get =
        |name: &str| variables.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned());
    find(&get, is_requested)
}

const SLURM: [(&str, &str); 5] = [
    ("SLURM_JOB_ID", "7"),
    ("SLURM_STEP_ID", "0"),
    ("SLURM_PROCID", "3"),
    ("SLURM_STEP_NUM_TASKS", "4"),
    ("SLURM_STEP_NODELIST", "n[08-10,12]"),
];

const LWS: [(&str, &str); 3] =
    [("LWS_WORKER_INDEX", "1"), ("LWS_GROUP_SIZE", "3"), ("LWS_LEADER_ADDRESS", "set-0.svc")];

const TORCH: [(&str, &str); 4] =
    [("RANK", "1"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "10.0.0.1"), ("MASTER_PORT", "29500")];

#[test]
fn sources_state_rank_size_and_address() {
    let rendezvous = ("MPJ_RENDEZVOUS", "h0:7000");
    for (variables, is_requested, rank, size, address) in [
        (&[("MPJ_RANK", "1"), ("MPJ_SIZE", "3"), rendezvous][..], false, 1, 3, "h0:7000"),
        (&[("JOB_COMPLETION_INDEX", "2"), ("MPJ_SIZE", "3"), rendezvous], false, 2, 3, "h0:7000"),
        (&[&LWS[..], &[rendezvous]].concat(), false, 1, 3, "h0:7000"),
        (&LWS, true, 1, 3, "set-0.svc:29517"),
        (&[&SLURM[..], &[("SLURM_STEP_RESV_PORTS", "12001-12004")]].concat(), false, 3, 4, "n08:12001"),
        (&[&SLURM[..], &[rendezvous]].concat(), false, 3, 4, "h0:7000"),
        (&TORCH, true, 1, 2, "10.0.0.1:29500"),
        (&TORCH[..3], true, 1, 2, "10.0.0.1:29517"),
    ] {
        let found = find_in(variables, is_requested).unwrap().unwrap();
        let text = found.address.unwrap().to_string();
        assert_eq!((found.rank, found.size, &*text), (rank, size, address), "{variables:?}");
    }
    let found = find_in(&SLURM, false).unwrap().unwrap();
    let port = found.address.as_ref().unwrap().port;
    assert!(SLURM_PORTS.contains(&u64::from(port)) && found.job == "slurm 7.0", "{found:?}");
    let next_step = [&[("SLURM_STEP_ID", "1")], &SLURM[..]].concat();
    assert_ne!(find_in(&next_step, false).unwrap().unwrap().address, found.address);
}

#[test]
fn only_rank_of_a_job_needs_no_address() {
    for variables in [
        &[("SLURM_STEP_ID", "0"), ("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "1")][..],
        &[("MPJ_RANK", "0"), ("MPJ_SIZE", "1"), ("MPJ_RENDEZVOUS", "h0:7000")],
    ] {
        let found = find_in(variables, false).unwrap().unwrap();
        assert_eq!((found.rank, found.size, found.address), (0, 1, None), "{variables:?}");
    }
}

#[test]
fn variables_of_other_programs_are_ignored() {
    for variables in [
        &[][..],
        // Those of a program that a rank of `mpjrun` has started, without and with the variable of the socket.
        &[("MPJ_RANK", "1"), ("MPJ_SIZE", "3"), ("MPJ_CORES", "2")],
        &[("MPJ_RANK", "1"), ("MPJ_SIZE", "3"), ("MPJ_CONTROL", "3:4")],
        // A process that is a job of its own, started by a shell or in a pod.
        &[("MPJ_RANK", "0"), ("MPJ_SIZE", "1")],
        &[("MPJ_SIZE", "3")],
        &[("JOB_COMPLETION_INDEX", "2")],
        // These sources need a request, or for `LWS` the variable MPJ_RENDEZVOUS.
        &TORCH,
        &LWS,
        // A batch script.
        &[("SLURM_JOB_ID", "7"), ("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")],
        // Open MPI starts its daemons as tasks of Slurm, and its ranks inherit the variables of these tasks.
        &[&SLURM[..], &[("OMPI_COMM_WORLD_RANK", "5")]].concat(),
    ] {
        assert_eq!(find_in(variables, false), Ok(None), "{variables:?}");
    }
}

#[test]
fn incomplete_variables_are_errors() {
    let rendezvous = ("MPJ_RENDEZVOUS", "h0:7000");
    for (variables, is_requested, why) in [
        (&[rendezvous][..], false, "no variables state the rank of this process"),
        (
            &[("MPJ_RANK", "1"), ("MPJ_SIZE", "3")],
            false,
            "MPJ_RANK=1 and MPJ_SIZE=3 are set, but not MPJ_RENDEZVOUS: set it to HOST:PORT of rank 0",
        ),
        (&[("JOB_COMPLETION_INDEX", "1"), ("MPJ_SIZE", "3")], false, "JOB_COMPLETION_INDEX=1 and MPJ_SIZE=3"),
        (&[], true, "explicit variables (MPJ_RANK, MPJ_RENDEZVOUS, MPJ_SIZE)"),
        (&[("MPJ_RANK", "1"), rendezvous], false, "MPJ_SIZE is not set, but MPJ_RANK is"),
        (
            &[("JOB_COMPLETION_INDEX", "1"), rendezvous],
            false,
            "MPJ_SIZE is not set, but JOB_COMPLETION_INDEX is",
        ),
        (&[("MPJ_RANK", "x"), ("MPJ_SIZE", "3"), rendezvous], false, "MPJ_RANK=x is not a number"),
        (
            &[("MPJ_RANK", "3"), ("MPJ_SIZE", "3"), rendezvous],
            false,
            "MPJ_RANK=3 is not a rank of 3 ranks (MPJ_SIZE)",
        ),
        (&[("MPJ_RANK", "0"), ("MPJ_SIZE", "0"), rendezvous], false, "MPJ_RANK=0 is not a rank of 0 ranks"),
        (
            &[("MPJ_RANK", "1"), ("MPJ_SIZE", "3"), ("MPJ_RENDEZVOUS", "h0")],
            false,
            "MPJ_RENDEZVOUS=h0 is not HOST:PORT, such as",
        ),
        (
            &SLURM[..4],
            false,
            "started by a step of Slurm (SLURM_PROCID=3): SLURM_STEP_NODELIST is not set; set MPJ_REN",
        ),
        (&[&[("SLURM_STEP_NODELIST", "n[")], &SLURM[..4]].concat(), false, "=n[ is not a list of nodes"),
        (&[&[("MASTER_PORT", "x")], &TORCH[..3]].concat(), true, "MASTER_PORT=x is not a port"),
    ] {
        let error = find_in(variables, is_requested).unwrap_err();
        assert!(error.contains(why), "{variables:?}: {error}");
    }
}

#[test]
fn addresses_have_a_host_and_a_port() {
    for (text, shown) in
        [("h0:7000", "h0:7000"), ("[fd00::1]:1", "[fd00::1]:1"), ("a.b-c_d:65535", "a.b-c_d:65535")]
    {
        assert_eq!(RendezvousAddress::parse(text).unwrap().to_string(), shown);
    }
    for text in
        ["", ":", "h0", ":7000", "h0:", "h0:0", "h0:65536", "h0:x", "fd00::1:7000", "[]:1", "h 0:1", "h\n:1"]
    {
        assert!(RendezvousAddress::parse(text).is_err(), "{text}");
    }
}

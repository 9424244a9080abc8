//! Errors name the call, the communicator, and the rank or the sizes.

use mpj::{ErrorClass, Op, Result, World, coll};

/// Returns a communicator with a name.
fn halo(world: &World) -> Result<mpj::Intracomm> {
    let halo = world.dup()?;
    halo.set_name("halo");
    Ok(halo)
}

#[track_caller]
fn check<T>(outcome: Result<T>, class: ErrorClass, text: &str) {
    let Err(error) = outcome else { panic!("{text}: succeeds") };
    assert_eq!((error.class(), error.to_string().as_str()), (class, text));
}

#[mpj::test(ranks = 2)]
fn invalid_arguments_name_the_communicator(world: World) -> Result<()> {
    let halo = halo(&world)?;
    check(
        halo.send(&[0u8], 5, 0),
        ErrorClass::Rank,
        "send on \"halo\": rank 5 is out of range: the communicator has ranks 0 to 1",
    );
    check(
        halo.recv(&mut [0u8], 0, -7),
        ErrorClass::Tag,
        "recv on \"halo\": tag -7 is outside 0..=2147483647",
    );
    check(
        world.dup()?.probe(9, 0),
        ErrorClass::Rank,
        "probe on \"world.dup 2\": rank 9 is out of range: the communicator has ranks 0 to 1",
    );
    check(
        world.send(&[0u8], 5, 0),
        ErrorClass::Rank,
        "send: rank 5 is out of range: the communicator has ranks 0 to 1",
    );
    let failed = world.dup()?;
    failed.set_name("rows");
    check(
        failed.bcast(&mut [0u8], 3),
        ErrorClass::Root,
        "bcast on \"rows\": root 3 is out of range: the communicator has ranks 0 to 1",
    );
    let again = failed.barrier().unwrap_err().to_string();
    assert!(again.starts_with("barrier on \"rows\": "), "{again}");
    Ok(())
}

#[mpj::test(ranks = 2)]
fn failed_messages_name_the_communicator(world: World) -> Result<()> {
    let halo = halo(&world)?;
    let other = 1 - world.rank();
    halo.send(&[0u32; 4], other, 1)?;
    let error = halo.recv(&mut [0u32; 2], other, 1).unwrap_err();
    let text = error.to_string();
    assert!(
        error.class() == ErrorClass::Truncate
            && text.starts_with("recv on \"halo\": ")
            && text.contains("16"),
        "{text}"
    );
    halo.send(&[0u32; 4], other, 2)?;
    let error = mpj::Error::from(halo.irecv([0f32; 4], other, 2)?.wait().unwrap_err());
    assert!(
        error.class() == ErrorClass::Type && error.to_string().starts_with("irecv on \"halo\": "),
        "{error}"
    );
    halo.send(&[0u32; 4], other, 3)?;
    let mut short = [0u32; 1];
    let scoped = halo.scope(|s| s.irecv(&mut short, other, 3)?.wait().map(drop));
    assert!(scoped.unwrap_err().to_string().starts_with("irecv on \"halo\": "));
    Ok(())
}

#[mpj::test(ranks = 2)]
fn failed_collectives_name_the_communicator(world: World) -> Result<()> {
    let halo = halo(&world)?;
    let mut sum = vec![0u64; 2 + world.rank()];
    let mine = sum.clone();
    let error = halo.allreduce(&mine, &mut sum, Op::Sum).unwrap_err();
    assert!(error.to_string().starts_with("allreduce on \"halo\": "), "{error}");
    let dup = world.dup()?;
    dup.set_name("columns");
    let started = dup.start(coll::allreduce(mine, sum, Op::Sum))?.wait();
    let error = mpj::Error::from(started.unwrap_err());
    assert!(error.to_string().starts_with("iallreduce on \"columns\": "), "{error}");
    Ok(())
}

#[mpj::test(ranks = 2)]
fn invalid_buffered_sends_name_the_communicator(world: World) -> Result<()> {
    let halo = halo(&world)?;
    let other = 1 - world.rank();
    let no_buffer = "on \"halo\": the communicator has no attached buffer: attach one first";
    check(halo.bsend(&[0u8], other, 0), ErrorClass::Buffer, &format!("bsend {no_buffer}"));
    let attached = halo.attach(64)?;
    let again = halo.attach(64).map(drop).unwrap_err().to_string();
    assert!(
        again.starts_with("attach on \"halo\": the communicator has an attached buffer of 64 bytes"),
        "{again}"
    );
    let full = halo.bsend(&[0u8; 100], other, 0).unwrap_err().to_string();
    assert!(full.starts_with("bsend on \"halo\": the attached buffer lacks "), "{full}");
    drop(attached);
    Ok(())
}

#[mpj::test(ranks = 2)]
fn messages_of_another_type_name_the_communicator(world: World) -> Result<()> {
    let halo = halo(&world)?;
    let other = 1 - world.rank();
    let expect = |error: mpj::Error, start: &str| {
        let text = error.to_string();
        assert!(text.starts_with(start), "{text}");
    };
    halo.send(&[0u8; 3], other, 0)?;
    expect(
        halo.recv_vec::<u32>(other, 0).unwrap_err(),
        &format!(
            "recv_vec on \"halo\": type mismatch: rank {other} sent 3 × u8 with tag 0, the receive expects 1 × u32"
        ),
    );
    halo.send_object("text", other, 1)?;
    let wrong = halo.recv_object::<u32>(other, 1).map(drop);
    expect(wrong.unwrap_err(), "recv_object on \"halo\": cannot decode");
    halo.send_object("text", other, 2)?;
    let wrong = halo.irecv_object::<u32>(other, 2)?.wait().map(drop);
    expect(wrong.unwrap_err(), "irecv_object on \"halo\": cannot decode");
    Ok(())
}

#[mpj::test(ranks = 2)]
fn invalid_parts_and_starts_name_the_communicator(world: World) -> Result<()> {
    let halo = halo(&world)?;
    if world.rank() == 0 {
        let mut send = halo.psend_init(vec![0u8; 8], 4, 1, 0)?;
        let filling = send.start()?;
        let missing = "part on \"halo\": part 9 is out of range: the message has 4 parts";
        check(filling.part(9).map(drop), ErrorClass::Arg, missing);
        for part in 0..4 {
            filling.part(part)?.ready()?;
        }
        let twice = "part on \"halo\": part 1 of 4 is ready already, or another `PartMut` of it exists";
        check(filling.part(1).map(drop), ErrorClass::Request, twice);
        filling.wait()?;
    } else {
        let mut recv = halo.precv_init(vec![0u8; 8], 2, 0, 0)?;
        recv.start()?.wait()?;
    }
    Ok(())
}

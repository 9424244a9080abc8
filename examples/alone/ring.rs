//! The program in `README.md`: messages and collectives of four threads.
#![expect(clippy::print_stdout, reason = "a program's result")]

use std::process::ExitCode;

fn main() -> ExitCode {
    mpj::run_with(mpj::Launch::threads(4), rank)
}

// Runs once for each rank of this process. BoxError holds any error; mpj::Result holds errors of mpj only.
fn rank(world: mpj::World) -> Result<(), mpj::BoxError> {
    let (rank, size) = (world.rank(), world.size());
    let (left, right) = ((rank + size - 1) % size, (rank + 1) % size);

    // Around a ring with borrowed buffers: receive from the left, send to the right.
    let (mine, mut theirs) = ([rank as f64; 1000], [0.0; 1000]);
    world.scope(|s| {
        let receiving = s.irecv(&mut theirs, left, 0)?;
        s.isend(&mine, right, 0)?;
        receiving.wait().map(drop)
    })?;
    assert_eq!(theirs[0], left as f64);

    // The sum over all ranks; every rank gets the same bits.
    let mut sum = [0.0];
    world.allreduce(&[theirs[0]], &mut sum, mpj::Op::Sum)?;

    // One message with a typed section and a serde value. Its length can differ from rank to rank.
    let mut message = mpj::buffer::Buffer::with_capacity(4096)?;
    message.write(&[sum[0]; 3])?;
    message.write_object(&("from", rank))?;
    let sending = world.isend(message.commit(), right, 1)?; // the request owns it until it is sent
    let (mut came, _) = world.recv_buffer(left, 1)?; // into a pool block of the right size
    assert_eq!(came.view::<f64>()?, [sum[0]; 3]); // not copied
    assert_eq!(came.read_object::<(String, usize)>()?.1, left);
    sending.wait()?; // returns the buffer

    // A serde value on its own.
    let names = world.bcast_object(vec!["alpha".to_string(), "beta".to_string()], 0)?;
    if rank == 0 {
        println!("{size} ranks, sum {}, {} names", sum[0], names.len());
    }
    Ok(())
}

//! Tasks that send buffers to an echo server over TCP, with tokio: `cargo run -p mpj-buffer --example echo`.
//! [`Receiver::read`] and `MessageReader::write_to` make non-blocking calls, which the tasks repeat.
#![allow(clippy::print_stdout, reason = "a program")]

use std::error::Error;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::Ipv4Addr;

use mpj_buffer::pool::{DefaultBlock, DefaultPool, global};
use mpj_buffer::{Buffer, Reading, Received, Receiver};
use tokio::net::{TcpListener, TcpStream};

const LIMIT: usize = 16 << 20;

/// A stream whose reads and writes return [`ErrorKind::WouldBlock`] instead of waiting.
struct NonBlocking<'a>(&'a TcpStream);

impl Read for NonBlocking<'_> {
    fn read(&mut self, dst: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(dst)
    }
}

impl Write for NonBlocking<'_> {
    fn write(&mut self, src: &[u8]) -> io::Result<usize> {
        self.0.try_write(src)
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(pieces)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

async fn send(stream: &TcpStream, message: &Buffer<DefaultBlock, Reading>) -> io::Result<()> {
    let mut reader = message.reader();
    loop {
        match reader.write_to(NonBlocking(stream)) {
            Err(e) if e.kind() == ErrorKind::WouldBlock => stream.writable().await?,
            done => return done,
        }
    }
}

async fn receive(
    stream: &TcpStream,
    receiver: &mut Receiver<&'static DefaultPool>,
) -> Result<Option<Buffer<DefaultBlock, Reading>>, Box<dyn Error + Send + Sync>> {
    loop {
        match receiver.read(NonBlocking(stream))? {
            Received::Message(message) => return Ok(Some(message)),
            Received::End => return Ok(None),
            Received::Pending => stream.readable().await?,
        }
    }
}

async fn echo(stream: TcpStream) -> Result<usize, Box<dyn Error + Send + Sync>> {
    let mut receiver = Receiver::new(global(), LIMIT);
    let mut count = 0;
    while let Some(message) = receive(&stream, &mut receiver).await? {
        send(&stream, &message).await?;
        count += 1;
    }
    Ok(count)
}

async fn client(stream: TcpStream, name: usize) -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut receiver = Receiver::new(global(), LIMIT);
    for round in 0..20 {
        let numbers: Vec<f64> = (0..1usize << round).map(|i| (i * name) as f64).collect();
        let mut message = Buffer::with_capacity(256)?;
        message.write(&[name as u64, round as u64])?;
        message.write_object(&numbers)?;
        send(&stream, &message.commit()).await?;

        let mut message = receive(&stream, &mut receiver).await?.ok_or("the server closed the connection")?;
        assert_eq!(message.view::<u64>()?, [name as u64, round as u64]);
        assert_eq!(message.read_object::<Vec<f64>>()?, numbers);
    }
    Ok(())
}

async fn run() -> Result<usize, Box<dyn Error + Send + Sync>> {
    const CLIENTS: usize = 8;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    let clients: Vec<_> = (0..CLIENTS)
        .map(|name| tokio::spawn(async move { client(TcpStream::connect(address).await?, name).await }))
        .collect();
    let mut servers = Vec::new();
    for _ in 0..CLIENTS {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        servers.push(tokio::spawn(echo(stream)));
    }
    for client in clients {
        client.await??;
    }
    let mut count = 0;
    for server in servers {
        count += server.await??;
    }
    Ok(count)
}

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_io().build()?;
    println!("{} messages were returned", runtime.block_on(run())?);
    Ok(())
}

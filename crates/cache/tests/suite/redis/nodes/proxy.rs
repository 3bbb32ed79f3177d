//! A proxy between one node and its Redis that simulates network failures.

use std::time::Duration;

use stockade_cache::{Live, Runtime};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Open,
    /// Delays all bytes.
    Long(Duration),
    /// Drops all bytes without an error.
    Stalled,
    /// Closes all connections, old and new ones.
    Cut,
}

/// Forwards bytes while the connection is open.
pub struct Proxy {
    pub port: u16,
    line: watch::Sender<Line>,
}

impl Proxy {
    /// A proxy for a port of the loopback interface.
    pub async fn before(server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let (line, is) = watch::channel(Line::Open);
        let (port, live) = (listener.local_addr().unwrap().port(), Live::new());
        live.clone().spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if *is.borrow() == Line::Cut {
                    continue;
                }
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await else { continue };
                let ((from_client, to_client), (from_server, to_server)) =
                    (client.into_split(), server.into_split());
                live.spawn(pass(from_client, to_server, is.clone()));
                live.spawn(pass(from_server, to_client, is.clone()));
            }
        });
        Self { port, line }
    }

    pub fn open(&self) {
        self.line.send_replace(Line::Open);
    }

    pub fn lengthen(&self, time: Duration) {
        self.line.send_replace(Line::Long(time));
    }

    pub fn stall(&self) {
        self.line.send_replace(Line::Stalled);
    }

    pub fn cut(&self) {
        self.line.send_replace(Line::Cut);
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut line: watch::Receiver<Line>) {
    let mut bytes = vec![0; 16 << 10];
    loop {
        let is = *line.borrow_and_update();
        let read = match is {
            Line::Cut => return,
            Line::Stalled => {
                if line.changed().await.is_err() {
                    return;
                }
                continue;
            }
            Line::Open | Line::Long(_) => tokio::select! {
                read = from.read(&mut bytes) => read.unwrap_or(0),
                changed = line.changed() => match changed {
                    Ok(()) => continue,
                    Err(_) => return,
                },
            },
        };
        if let Line::Long(time) = is {
            super::sleep(time).await;
        }
        if read == 0 || to.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}

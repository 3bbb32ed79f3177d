//! A network between a process and a server, which can be cut.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};

/// Forwards connections to a port until it is cut. Then nothing passes, and no connection ends.
pub struct Link {
    pub address: SocketAddr,
    is_cut: Arc<AtomicBool>,
}

impl Link {
    pub fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let (address, is_cut) =
            (listener.local_addr().expect("its address"), Arc::new(AtomicBool::new(false)));
        let flag = Arc::clone(&is_cut);
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let Ok(far) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { continue };
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (from, to) = (from.try_clone().expect("a handle"), to.try_clone().expect("a handle"));
                    let flag = Arc::clone(&flag);
                    thread::spawn(move || forward(from, to, &flag));
                }
            }
        });
        Self { address, is_cut }
    }

    pub fn cut(&self) {
        self.is_cut.store(true, Relaxed);
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, is_cut: &AtomicBool) {
    let _ = to.set_nodelay(true);
    let mut bytes = [0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if is_cut.load(Relaxed) {
            // Holds both ends until the test process ends.
            loop {
                thread::park();
            }
        }
        if to.write_all(&bytes[..count]).is_err() {
            return;
        }
    }
}

//! What a cache and its origin say to each other: a TCP proxy that forwards every byte and keeps the heads.

use std::{
    io::{BufReader, Result, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, Receiver, Sender},
    },
    thread,
};

use crate::http::{method, read_body, read_head, request_length, response_length, status};

/// A request that the cache has sent.
#[derive(Clone, Debug)]
pub struct Exchange {
    pub request: String,
    /// `None`: none has arrived.
    pub response: Option<String>,
}

/// It forwards until the process ends.
#[derive(Debug)]
pub struct Tap {
    pub address: SocketAddr,
    exchanges: Arc<Mutex<Vec<Exchange>>>,
}

impl Tap {
    /// In front of an origin.
    pub fn start(origin: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let tap = Self { address: listener.local_addr()?, exchanges: Arc::default() };
        let exchanges = Arc::clone(&tap.exchanges);
        thread::spawn(move || {
            for cache in listener.incoming().flatten() {
                let exchanges = Arc::clone(&exchanges);
                // An origin that does not accept: the cache's connection ends.
                let Ok(origin) = TcpStream::connect(origin) else { continue };
                thread::spawn(move || forward(&cache, &origin, &exchanges));
            }
        });
        Ok(tap)
    }

    /// All exchanges so far, in the order of the requests.
    pub fn exchanges(&self) -> Vec<Exchange> {
        self.exchanges.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn forward(cache: &TcpStream, origin: &TcpStream, exchanges: &Mutex<Vec<Exchange>>) {
    let _ = (cache.set_nodelay(true), origin.set_nodelay(true));
    let (sent, to_answer) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            let _ = requests(cache, origin, exchanges, sent);
            // The cache has closed its side, or both are gone.
            let _ = origin.shutdown(Shutdown::Write);
        });
        let _ = responses(origin, cache, exchanges, &to_answer);
        // The origin has closed the connection.
        let _ = cache.shutdown(Shutdown::Both);
        let _ = origin.shutdown(Shutdown::Both);
    });
}

fn requests(
    cache: &TcpStream,
    mut origin: &TcpStream,
    exchanges: &Mutex<Vec<Exchange>>,
    sent: Sender<(usize, String)>,
) -> Result<()> {
    let mut from = BufReader::new(cache);
    while let Some(head) = read_head(&mut from)? {
        let number = {
            let mut exchanges = exchanges.lock().unwrap_or_else(PoisonError::into_inner);
            exchanges.push(Exchange { request: head.clone(), response: None });
            exchanges.len() - 1
        };
        // The other side may have ended already.
        let _ = sent.send((number, method(&head).to_owned()));
        write!(origin, "{head}\r\n")?;
        read_body(&mut from, request_length(&head), |bytes| origin.write_all(bytes))?;
    }
    // No further response is expected.
    drop(sent);
    Ok(())
}

fn responses(
    origin: &TcpStream,
    mut cache: &TcpStream,
    exchanges: &Mutex<Vec<Exchange>>,
    sent: &Receiver<(usize, String)>,
) -> Result<()> {
    let mut from = BufReader::new(origin);
    while let Some(mut head) = read_head(&mut from)? {
        while status(&head) < 200 {
            write!(cache, "{head}\r\n")?;
            let Some(next) = read_head(&mut from)? else { return Ok(()) };
            head = next;
        }
        let Ok((number, method)) = sent.recv() else { return Ok(()) };
        exchanges.lock().unwrap_or_else(PoisonError::into_inner)[number].response = Some(head.clone());
        write!(cache, "{head}\r\n")?;
        read_body(&mut from, response_length(&head, &method), |bytes| cache.write_all(bytes))?;
    }
    Ok(())
}

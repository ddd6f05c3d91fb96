//! Connections of clients to nodes: ordered streams that take time, break, and hang where the network is cut.

use crate::adapter::{Input, Output};
use crate::wire::{decode_request, decode_response, encode_request};
use crate::world::{Connection, Event, World};
use norn_wire::{Request, Response};
use std::rc::Rc;

/// A client's attempt to connect to an endpoint, or the connection that came of it; both under one number.
#[derive(Debug, Clone, Copy)]
pub struct Link {
    /// Number, unique in the world.
    pub attempt: u64,
    /// The client knows that it is up.
    pub up: bool,
}

impl World {
    fn client_place(&self, client: usize) -> usize {
        self.nodes.len() + client
    }

    /// Nodes to which a client has a connection.
    pub fn nodes_of(&self, client: usize) -> Vec<usize> {
        let numbers = self.clients[client].links.values().filter(|link| link.up).map(|link| link.attempt);
        numbers.filter_map(|number| Some(self.connections.get(&number)?.node)).collect()
    }

    /// Cuts a client off from a node in both directions, until cuts are mended.
    pub fn cut_client(&mut self, client: usize, node: usize) {
        let place = self.client_place(client);
        self.network.cut(place, node);
        self.network.cut(node, place);
        self.line(format_args!("c{client} cut off from n{node}"));
    }

    fn client_delay_us(&mut self) -> u64 {
        self.network.weather.delay_us(&mut self.randoms.links)
    }

    /// Carries out a session's output about its links.
    pub fn link_output(&mut self, client: usize, output: Output) {
        match output {
            Output::Connect { endpoint } => {
                let attempt = self.moment().sequence;
                let before = self.clients[client].links.insert(endpoint, Link { attempt, up: false });
                assert!(before.is_none(), "a session connects once at a time");
                let delay_us = self.client_delay_us() * 2;
                self.schedule_in(delay_us, Event::Connect { client, attempt });
            }
            Output::Disconnect { endpoint } => {
                if let Some(link) = self.clients[client].links.remove(&endpoint) {
                    self.break_connection(link.attempt);
                }
            }
            Output::Send { endpoint, number, request } => self.send_request(client, endpoint, number, &request),
            Output::Done { .. } => unreachable!("an answer is no matter of links"),
        }
    }

    fn endpoint_of(&self, client: usize, attempt: u64) -> Option<usize> {
        self.clients[client].links.iter().find(|(_, link)| link.attempt == attempt).map(|(endpoint, _)| *endpoint)
    }

    /// Handles an attempt to connect: it gets to the node, or does not.
    pub fn connect_arrives(&mut self, client: usize, attempt: u64) {
        let Some(endpoint) = self.endpoint_of(client, attempt) else { return };
        let place = self.client_place(client);
        let node = self.losses.heir(endpoint);
        let (up, paused) = {
            let process = &self.nodes[node];
            (process.running.is_some(), process.paused_until_us > self.now_us)
        };
        if !up || paused || self.network.is_cut(place, node) || self.network.is_cut(node, place) {
            let delay_us = if up { self.randoms.links.between(200_000, 2_000_000) } else { 1_000 };
            return self.schedule_in(delay_us, Event::Disconnected { client, attempt });
        }
        let boot = self.nodes[node].boot;
        self.connections.insert(attempt, Connection { client, node, boot, latest_us: [0; 2] });
        self.clients[client].links.insert(endpoint, Link { attempt, up: true });
        self.line(format_args!("c{client} connected n{node} {attempt}"));
        self.give_client(client, Input::Connected { endpoint });
    }

    /// Reports a failed attempt or a broken connection to the client.
    pub fn disconnected(&mut self, client: usize, attempt: u64) {
        if let Some(endpoint) = self.endpoint_of(client, attempt) {
            self.clients[client].links.remove(&endpoint);
            self.line(format_args!("c{client} disconnected n{endpoint} {attempt}"));
            self.give_client(client, Input::Disconnected { endpoint });
        }
    }

    /// Ends a connection. What is on the way is lost, and both sides learn of it in their own time.
    pub fn break_connection(&mut self, number: u64) {
        let Some(connection) = self.connections.remove(&number) else { return };
        let delays = [self.randoms.links.between(0, 300_000), self.randoms.links.between(0, 300_000)];
        let Connection { client, node, boot, .. } = connection;
        self.trouble_client(client);
        self.schedule_in(delays[0], Event::Disconnected { client, attempt: number });
        self.schedule_in(delays[1], Event::ClientGone { node, boot, connection: number });
    }

    /// When bytes arrive at one side of a connection: in order, and never if the network is cut; then the connection breaks.
    fn transfer(&mut self, number: u64, to_client: bool) -> Option<u64> {
        let delay_us = self.client_delay_us();
        let connection = self.connections.get(&number)?;
        let ends = [connection.node, self.client_place(connection.client)];
        let (from, to) = if to_client { (ends[0], ends[1]) } else { (ends[1], ends[0]) };
        if self.network.is_cut(from, to) {
            let hang_us = self.randoms.links.between(300_000, 3_000_000);
            self.schedule_in(hang_us, Event::Break { connection: number });
            return None;
        }
        let arrival_us = self.now_us + delay_us;
        let latest = &mut self.connections.get_mut(&number)?.latest_us[usize::from(to_client)];
        *latest = arrival_us.max(*latest);
        Some(*latest)
    }

    fn send_request(&mut self, client: usize, endpoint: usize, number: u64, request: &Request) {
        let Some(link) = self.clients[client].links.get(&endpoint).copied() else { return };
        assert!(link.up, "a session sends on open connections");
        self.line(format_args!("c{client} -> n{endpoint} {number} {request:?}"));
        let bytes = encode_request(number, request);
        if let Some(at_us) = self.transfer(link.attempt, false) {
            self.schedule(at_us, Event::Request { connection: link.attempt, bytes });
        }
    }

    /// Delivers a request to its node.
    pub fn request_arrives(&mut self, number: u64, bytes: &[u8]) {
        let Some(connection) = self.connections.get(&number) else { return };
        let (node, boot) = (connection.node, connection.boot);
        assert_eq!(self.nodes[node].boot, boot, "connections break with their process");
        let (request_number, request) = decode_request(bytes);
        self.ask_node(node, number, request_number, request);
    }

    /// Sends a node's answer.
    pub fn send_response(&mut self, number: u64, bytes: Rc<[u8]>) {
        if let Some(at_us) = self.transfer(number, true) {
            self.schedule(at_us, Event::Response { connection: number, bytes });
        }
    }

    /// Delivers an answer to its client.
    pub fn response_arrives(&mut self, number: u64, bytes: &[u8]) {
        let Some(connection) = self.connections.get(&number) else { return };
        let client = connection.client;
        let Some(endpoint) = self.endpoint_of(client, number) else { return };
        let (request_number, response): (u64, Response) = decode_response(bytes);
        self.give_client(client, Input::Received { endpoint, number: request_number, response });
    }
}

// SPDX-License-Identifier: Apache-2.0

// Package traffic is the servers and the clients whose packets are the proof of what a network does.
//
// A server says whom it saw: every request is answered with a Greeting that names the server, the peer address it saw,
// the address it was reached at, and the nonce of the request. A probe sends one request and puts what came of it into
// one word, an Outcome. The protocol can be spoken by hand:
//
//	request   a line "NONCE [BYTES]", then BYTES bytes of payload (TCP: a stream of these; UDP: one datagram each)
//	answer    a line of JSON, the Greeting, then as many bytes of payload back
//
//	$ echo hello | nc -q1 10.96.0.1 80
//	{"server":"web-1","peer":"10.244.1.2:40001","local":"10.244.2.3:8080","nonce":"hello","serial":1}
//
// A TCP server speaks as much HTTP as it takes to be asked by a browser's kin; the path is the nonce:
//
//	$ curl http://10.96.0.1/hello
//
// # Silence
//
// The absence of an answer is proved, not waited for. All namespaces of a lab live in one kernel, where a packet that
// enters a veth device is put on the backlog queue of the CPU that sent it, and every hop puts it there again: a queue
// per CPU, first in, first out. So a probe pins its thread to one CPU, sends its packet, and then sends ICMP echoes,
// the fences, over an allowed path from the same CPU, one after another. Whenever a fence packet has advanced by one
// hop, the probe's packet and whatever the kernel answered to it have advanced by at least one hop too. Once enough
// echoes have been there and back, everything that the probe caused in the kernel has happened.
//
// What a server of this process does with a request that has reached it is not the kernel's work. All servers of the
// process therefore share one event loop, which a probe can run itself: after the fences it lets every request that
// lies in a socket be served, and learns whether its own was among them.
//
// A fence says nothing about packets that somebody holds back on purpose: a process that relays (a userspace proxy), a
// delaying queue discipline, an address whose neighbour is being looked up in vain (the kernel reports that after 3 s).
// Probe.Patience is for those.
package traffic

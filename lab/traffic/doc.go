// SPDX-License-Identifier: Apache-2.0

// Package traffic provides the servers and clients whose packets show what a network does.
//
// A server reports what it saw: it answers every request with a Greeting that names the server, the peer address it
// saw, the address it was reached at, and the nonce of the request. A probe sends one request and sums up the result in
// one word, an Outcome. The protocol can be used by hand:
//
//	request   a line "NONCE [BYTES]", then BYTES bytes of payload (TCP: a stream of these; UDP: one datagram each)
//	answer    a line of JSON, the Greeting, then as many bytes of payload back
//
//	$ echo hello | nc -q1 10.96.0.1 80
//	{"server":"web-1","peer":"10.244.1.2:40001","local":"10.244.2.3:8080","nonce":"hello","serial":1}
//
// A TCP server also answers a plain HTTP GET, so curl works; the path is the nonce:
//
//	$ curl http://10.96.0.1/hello
//
// # Silence
//
// The absence of an answer is proved, not waited for. All namespaces of a lab live in one kernel. A packet that enters
// a veth device is put on the backlog queue of the CPU that sent it, and so it is at every hop: a first-in, first-out
// queue per CPU. So a probe notes which CPU sends its packet, and then sends ICMP echoes, the fences, over an allowed
// path from the same CPU, one after another. If the kernel has switched the thread off its CPU meanwhile, it may have
// moved it, and the fences are sent from every CPU. Whenever a fence packet has advanced by one hop, the probe's
// packet and every answer of the kernel to it have advanced by at least one hop too. Once enough echoes have been
// answered, everything that the probe caused in the kernel has happened.
//
// The kernel's queues do not cover the servers of this process. Therefore all of them share one event loop, which a
// probe can run itself: after the fences it serves every request that is in a socket, and learns whether its own was
// among them.
//
// A fence proves nothing about packets that are held back on purpose: by a userspace proxy, a delaying queue, or the
// resolution of an absent neighbour (the kernel gives up after 3 s). Probe.Patience is for those.
package traffic

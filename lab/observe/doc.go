// SPDX-License-Identifier: Apache-2.0

// Package observe shows what happens in a network namespace: the entries of its conntrack table and their events, the
// packets on its devices, the packets that rules log, and the generations of its nftables ruleset. Await waits for a
// state: it checks again at every event, and returns the last mismatch when the context ends.
package observe

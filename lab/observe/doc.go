// SPDX-License-Identifier: Apache-2.0

// Package observe observes what a network does: the conntrack table and its events, the packets on every device, the
// generations of the ruleset. And it waits: Await is the one place where something is asked again and again.
package observe

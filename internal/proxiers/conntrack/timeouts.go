// SPDX-License-Identifier: Apache-2.0

package conntrack

import "github.com/viplab/viplab/lab/netns"

// Timeouts are the settings, in seconds, that kube-proxy makes in all its modes. The kernel forgets established
// connections after five days and half-closed ones after a minute: one is too long for a node that sees many, the other
// too short for a server that takes its time to close.
func Timeouts() []netns.Setting {
	return []netns.Setting{
		{Key: "net.netfilter.nf_conntrack_tcp_timeout_established", Value: "86400"},
		{Key: "net.netfilter.nf_conntrack_tcp_timeout_close_wait", Value: "3600"},
	}
}

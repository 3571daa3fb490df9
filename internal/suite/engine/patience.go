// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
)

// flowMemory is the timeout of idle UDP flows on nodes. It is longer than a step takes on the slowest machine, because
// a flow that has timed out gets a new endpoint without a fault of the proxier. The defaults are 30 s in the kernel and
// 5 minutes in IPVS.
const flowMemory = time.Hour

// patientTracking sets flowMemory in connection tracking, and how long it remembers an SCTP association that is being
// opened. By default those are forgotten after 3 s, and if a server of this process has no processor for as long, its
// answer is no longer translated.
var patientTracking = []netns.Setting{
	{Key: "net.netfilter.nf_conntrack_udp_timeout", Value: seconds(flowMemory), Optional: true},
	{Key: "net.netfilter.nf_conntrack_udp_timeout_stream", Value: seconds(flowMemory), Optional: true},
	{Key: "net.netfilter.nf_conntrack_sctp_timeout_cookie_wait", Value: seconds(probeLimit), Optional: true},
	{Key: "net.netfilter.nf_conntrack_sctp_timeout_cookie_echoed", Value: seconds(probeLimit), Optional: true},
}

func seconds(d time.Duration) string { return strconv.Itoa(int(d.Seconds())) }

// Numbers of the generic netlink interface of IPVS (include/uapi/linux/ip_vs.h).
const (
	ipvsFamily         = "IPVS"
	ipvsVersion        = 1
	ipvsCmdSetConfig   = 12
	ipvsAttrTimeoutUDP = 6
)

// patientIPVS sets flowMemory in IPVS if the kernel has loaded it. It does not change the other timeouts.
func patientIPVS(n *lab.Node) error {
	err := n.NS.Do(func() error {
		if _, err := os.Stat("/proc/thread-self/net/ip_vs"); err != nil {
			return nil
		}
		family, err := n.NS.Netlink().GenlFamilyGet(ipvsFamily)
		if err != nil {
			return err
		}
		request := nl.NewNetlinkRequest(int(family.ID), unix.NLM_F_ACK)
		request.AddData(&nl.Genlmsg{Command: ipvsCmdSetConfig, Version: ipvsVersion})
		request.AddData(nl.NewRtAttr(ipvsAttrTimeoutUDP, nl.Uint32Attr(uint32(flowMemory.Seconds()))))
		_, err = request.Execute(unix.NETLINK_GENERIC, 0)
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: set the timeouts of IPVS: %w", n.Name(), err)
	}
	return nil
}

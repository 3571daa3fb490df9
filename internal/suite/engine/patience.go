// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/moby/ipvs"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
)

// flowMemory is how long nodes remember an idle UDP flow: longer than a step takes on the slowest machine. By default
// the kernel forgets it after 30 s, IPVS after 5 minutes, and it would be led anew, for no reason of the proxier's.
const flowMemory = time.Hour

// patientTracking is that for connection tracking.
var patientTracking = []netns.Setting{
	{Key: "net.netfilter.nf_conntrack_udp_timeout", Value: seconds(flowMemory), Optional: true},
	{Key: "net.netfilter.nf_conntrack_udp_timeout_stream", Value: seconds(flowMemory), Optional: true},
}

func seconds(d time.Duration) string { return strconv.Itoa(int(d.Seconds())) }

// patientIPVS is that for IPVS. Where the kernel has not got it, or not loaded, it is nobody's business.
func patientIPVS(n *lab.Node) error {
	var h *ipvs.Handle
	err := n.NS.Do(func() (err error) {
		if _, err := os.Stat("/proc/thread-self/net/ip_vs"); err != nil {
			return nil
		}
		h, err = ipvs.New("") // in the namespace of the thread
		return err
	})
	if err == nil && h != nil {
		defer h.Close()
		err = h.SetConfig(&ipvs.Config{TimeoutUDP: flowMemory}) // zeros leave the others alone
	}
	if err != nil {
		return fmt.Errorf("%s: set the timeouts of IPVS: %w", n.Name(), err)
	}
	return nil
}

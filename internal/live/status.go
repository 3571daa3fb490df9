// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"net/netip"
	"time"

	"github.com/viplab/viplab/internal/live/control"
	"github.com/viplab/viplab/lab"
)

// The requests of commands.
const (
	Status = "status" // no arguments; the result is a Report
	Down   = "down"   // no arguments, no result
	Switch = "switch" // arguments of a Finder, no result
)

// Report describes a lab.
type Report struct {
	Name  string    `json:"name"`
	Began time.Time `json:"began"`
	// Age is in nanoseconds. It does not follow jumps of the machine's clock.
	Age      time.Duration `json:"age"`
	Proxier  string        `json:"proxier"`
	Enforcer string        `json:"enforcer,omitempty"`
	Families string        `json:"families"`
	Pods     string        `json:"pods"`
	Overlay  string        `json:"overlay"`
	Why      string        `json:"why"` // the reason for the overlay
	API      string        `json:"api"`
	Machines []Machine     `json:"machines"`
	// Failures tells which programs have not converged, and why.
	Failures []string `json:"failures,omitempty"`
}

// Nodes returns how many nodes the lab has.
func (r *Report) Nodes() int {
	nodes := 0
	for _, m := range r.Machines {
		if len(m.Pods) > 0 {
			nodes++
		}
	}
	return nodes
}

// Machine is a node of a lab, or a host outside the cluster.
type Machine struct {
	Name  string         `json:"name"`
	Addrs []netip.Addr   `json:"addrs"`
	Pods  []netip.Prefix `json:"pods,omitempty"` // of a node
}

func (l *Lab) status(context.Context, *control.Call) (any, error) {
	network := l.standing.Cluster().Lab()
	r := Report{
		Name: l.name, Began: l.began, Age: time.Since(l.began), Families: network.Stack().String(), API: l.endpoint.URL,
		Pods: network.Topology().PodNetwork.String(),
	}
	r.Proxier, r.Enforcer = l.standing.Programs()
	overlay, why := network.Overlay()
	r.Overlay, r.Why = overlay.String(), why
	for _, n := range network.Nodes() {
		r.Machines = append(r.Machines, Machine{Name: n.Name(), Addrs: primary(&n.Host, network), Pods: n.PodCIDRs()})
	}
	for _, h := range []*lab.Host{network.Client(), network.Router()} {
		r.Machines = append(r.Machines, Machine{Name: h.Name(), Addrs: primary(h, network)})
	}
	for _, err := range l.standing.Failures() {
		r.Failures = append(r.Failures, err.Error())
	}
	return r, nil
}

// primary returns the host's first address of each family.
func primary(h *lab.Host, network *lab.Lab) []netip.Addr {
	var out []netip.Addr
	for _, f := range network.Stack().Families() {
		out = append(out, h.Addr(f))
	}
	return out
}

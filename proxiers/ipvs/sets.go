// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/proxiers/ipset"
	"github.com/viplab/viplab/lab"
)

// setID identifies a set.
type setID int

// The sets. All but the last three have the same names as in kube-proxy.
const (
	loopBack setID = iota
	clusterIP
	externalIP
	loadBalancer
	loadBalancerFW
	sourceCIDR
	sourceIP
	nodePortTCP
	nodePortUDP
	nodePortSCTP
	healthCheck
	ipvsIPs
	internalNoLocal
	externalNoLocal
	externalRefused
	setCount
)

// kinds describes the sets and their members.
var kinds = [setCount]struct {
	name  string
	typ   ipset.Type
	about string
}{
	loopBack:        {"KUBE-LOOP-BACK", ipset.IPPortIP, "endpoints of this node, or of none, to themselves"},
	clusterIP:       {"KUBE-CLUSTER-IP", ipset.IPPort, "cluster IPs"},
	externalIP:      {"KUBE-EXTERNAL-IP", ipset.IPPort, "external IPs"},
	loadBalancer:    {"KUBE-LOAD-BALANCER", ipset.IPPort, "load balancer IPs"},
	loadBalancerFW:  {"KUBE-LOAD-BALANCER-FW", ipset.IPPort, "load balancer IPs that admit certain sources only"},
	sourceCIDR:      {"KUBE-LOAD-BALANCER-SOURCE-CIDR", ipset.IPPortNet, "these sources"},
	sourceIP:        {"KUBE-LOAD-BALANCER-SOURCE-IP", ipset.IPPortIP, "this node as a source, by the address itself"},
	nodePortTCP:     {"KUBE-NODE-PORT-TCP", ipset.Port, "node ports"},
	nodePortUDP:     {"KUBE-NODE-PORT-UDP", ipset.Port, "node ports"},
	nodePortSCTP:    {"KUBE-NODE-PORT-SCTP-HASH", ipset.IPPort, "node ports"},
	healthCheck:     {"KUBE-HEALTH-CHECK-NODE-PORT", ipset.Port, "health check ports"},
	ipvsIPs:         {"KUBE-IPVS-IPS", ipset.IP, "the addresses on " + deviceName},
	internalNoLocal: {"KUBE-INTERNAL-NO-LOCAL", ipset.IPPort, "internal policy Local, and no endpoint on this node"},
	externalNoLocal: {"KUBE-EXTERNAL-NO-LOCAL", ipset.IPPort, "external policy Local, and no endpoint on this node"},
	externalRefused: {"KUBE-EXTERNAL-REFUSED", ipset.IPPort, "addresses of others, and no endpoint at all"},
}

// nodePortSets are the sets of NodePorts by protocol. As in kube-proxy, those of SCTP contain addresses.
var nodePortSets = map[uint8]struct {
	id        setID
	byAddress bool
}{
	unix.IPPROTO_TCP:  {nodePortTCP, false},
	unix.IPPROTO_UDP:  {nodePortUDP, false},
	unix.IPPROTO_SCTP: {nodePortSCTP, true},
}

// nameIn returns the set's name in a family, which is kube-proxy's. Both families share one name space, and a name has
// at most 31 bytes.
func (id setID) nameIn(f lab.Family) string {
	name := kinds[id].name
	if f == lab.V6 {
		name = strings.Replace(name, "KUBE-", "KUBE-6-", 1)
	}
	return name[:min(len(name), 31)]
}

func (id setID) in(f lab.Family) ipset.Set {
	return ipset.Set{Name: id.nameIn(f), Type: kinds[id].typ, Family: f}
}

// sets are the sets of a family in the kernel.
type sets struct {
	family lab.Family
	conn   *ipset.Conn
	have   map[member]bool
}

// load makes the sets and reads their members.
func (s *sets) load() error {
	s.have = map[member]bool{}
	for id := range setCount {
		set := id.in(s.family)
		if err := s.conn.Create(set); err != nil {
			return err
		}
		entries, err := s.conn.Entries(set)
		if err != nil {
			return err
		}
		for _, e := range entries {
			s.have[member{id, e}] = true
		}
	}
	return nil
}

// change adds members that are missing, or removes members that exist.
func (s *sets) change(add bool, all []member) error {
	var bySet [setCount][]ipset.Entry
	for _, m := range all {
		if s.have[m] == add {
			continue
		}
		bySet[m.set] = append(bySet[m.set], m.entry)
		if add {
			s.have[m] = true
		} else {
			delete(s.have, m)
		}
	}
	do := s.conn.Delete
	if add {
		do = s.conn.Add
	}
	for id, entries := range bySet {
		if len(entries) == 0 {
			continue
		}
		if err := do(setID(id).in(s.family), entries...); err != nil {
			return err
		}
	}
	return nil
}

// destroy removes the sets. No rule may use them.
func (s *sets) destroy(ctx context.Context) error {
	var names []string
	for id := range setCount {
		names = append(names, id.nameIn(s.family))
	}
	s.have = nil
	return s.conn.DestroyAll(ctx, names...)
}

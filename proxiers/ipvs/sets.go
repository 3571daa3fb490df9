// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/proxiers/ipset"
	"github.com/viplab/viplab/lab"
)

// setID is one of the sets that rules look at.
type setID int

// The sets. All but the last two have kube-proxy's names.
const (
	loopBack setID = iota
	clusterIP
	externalIP
	externalIPLocal
	loadBalancer
	loadBalancerLocal
	loadBalancerFW
	sourceCIDR
	sourceIP
	nodePortTCP
	nodePortLocalTCP
	nodePortUDP
	nodePortLocalUDP
	nodePortSCTP
	nodePortLocalSCTP
	healthCheck
	ipvsIPs
	internalNoLocal
	externalNoLocal
	setCount
)

// kinds are what the sets are, and what is in them.
var kinds = [setCount]struct {
	name  string
	typ   ipset.Type
	about string
}{
	loopBack:          {"KUBE-LOOP-BACK", ipset.IPPortIP, "endpoints of this node as destination, themselves as source"},
	clusterIP:         {"KUBE-CLUSTER-IP", ipset.IPPort, "cluster IPs"},
	externalIP:        {"KUBE-EXTERNAL-IP", ipset.IPPort, "external IPs under policy Cluster"},
	externalIPLocal:   {"KUBE-EXTERNAL-IP-LOCAL", ipset.IPPort, "external IPs under policy Local"},
	loadBalancer:      {"KUBE-LOAD-BALANCER", ipset.IPPort, "load balancer IPs"},
	loadBalancerLocal: {"KUBE-LOAD-BALANCER-LOCAL", ipset.IPPort, "those of them under policy Local"},
	loadBalancerFW:    {"KUBE-LOAD-BALANCER-FW", ipset.IPPort, "those of them that admit certain sources only"},
	sourceCIDR:        {"KUBE-LOAD-BALANCER-SOURCE-CIDR", ipset.IPPortNet, "these sources"},
	sourceIP:          {"KUBE-LOAD-BALANCER-SOURCE-IP", ipset.IPPortIP, "this node as a source, by the address itself"},
	nodePortTCP:       {"KUBE-NODE-PORT-TCP", ipset.Port, "node ports"},
	nodePortLocalTCP:  {"KUBE-NODE-PORT-LOCAL-TCP", ipset.Port, "those of them under policy Local"},
	nodePortUDP:       {"KUBE-NODE-PORT-UDP", ipset.Port, "node ports"},
	nodePortLocalUDP:  {"KUBE-NODE-PORT-LOCAL-UDP", ipset.Port, "those of them under policy Local"},
	nodePortSCTP:      {"KUBE-NODE-PORT-SCTP-HASH", ipset.IPPort, "node ports"},
	nodePortLocalSCTP: {"KUBE-NODE-PORT-LOCAL-SCTP-HASH", ipset.IPPort, "those of them under policy Local"},
	healthCheck:       {"KUBE-HEALTH-CHECK-NODE-PORT", ipset.Port, "health check ports"},
	ipvsIPs:           {"KUBE-IPVS-IPS", ipset.IP, "the addresses on " + deviceName},
	internalNoLocal:   {"KUBE-INTERNAL-NO-LOCAL", ipset.IPPort, "internal policy Local, and no endpoint on this node"},
	externalNoLocal:   {"KUBE-EXTERNAL-NO-LOCAL", ipset.IPPort, "external policy Local, and no endpoint on this node"},
}

// nodePortSets are the sets of NodePorts by protocol. SCTP's is by address, as kube-proxy's is: it is younger.
var nodePortSets = map[uint8]struct {
	all, local setID
	byAddress  bool
}{
	unix.IPPROTO_TCP:  {nodePortTCP, nodePortLocalTCP, false},
	unix.IPPROTO_UDP:  {nodePortUDP, nodePortLocalUDP, false},
	unix.IPPROTO_SCTP: {nodePortSCTP, nodePortLocalSCTP, true},
}

// nameIn is the set's name in a family. Names of the two families share one space, and have at most 31 bytes; this is
// how kube-proxy deals with both.
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

// sets are those of a family in the kernel.
type sets struct {
	family lab.Family
	conn   *ipset.Conn
	// have is what is in them.
	have map[member]bool
}

// load makes the sets and reads what is in them.
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

// add puts members in that are missing.
func (s *sets) add(all []member) error {
	return s.change(all, false, s.conn.Add, func(m member) { s.have[m] = true })
}

// remove takes members out that are there.
func (s *sets) remove(all []member) error {
	return s.change(all, true, s.conn.Delete, func(m member) { delete(s.have, m) })
}

func (s *sets) change(all []member, present bool, do func(ipset.Set, ...ipset.Entry) error, done func(member)) error {
	var bySet [setCount][]ipset.Entry
	for _, m := range all {
		if s.have[m] == present {
			bySet[m.set] = append(bySet[m.set], m.entry)
			done(m)
		}
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

// destroy takes the sets away. No rule may look at them any more.
func (s *sets) destroy() error {
	var errs []error
	for id := range setCount {
		errs = append(errs, s.conn.Destroy(id.in(s.family)))
	}
	s.have = nil
	return errors.Join(errs...)
}

// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"fmt"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/given"
	"github.com/viplab/viplab/suite/spec"
)

// schedulers are the scenarios, one for each scheduler. Endpoints all have the same weight, so one that heeds weights
// does what the one without them does.
func schedulers() []spec.Scenario {
	return []spec.Scenario{
		standard(scheduler("rr", "round robin", inTurn)),
		scheduler("wrr", "weighted round robin", inTurn),
		scheduler("lc", "least connection", leastBusy),
		scheduler("wlc", "weighted least connection", leastBusy),
		scheduler("sed", "shortest expected delay", leastBusy),
		scheduler("nq", "never queue", leastBusy),
		scheduler("sh", "source hashing", bySource),
		scheduler("dh", "destination hashing", byDestination),
		scheduler("mh", "maglev hashing", byHash),
	}
}

func scheduler(name, long string, h habit) spec.Scenario {
	return spec.Scenario{
		ID: "rs-ipvs-scheduler-" + name, Group: "ruleset-shape", Priority: spec.P1,
		Needs:  []spec.Feature{spec.IPVS, spec.ClusterIP},
		Source: "kubernetes.io virtual-ips, the schedulers of ipvs mode",
		Why:    fmt.Sprintf("The scheduler %s (%s) %s.", name, long, h.why),
		Own:    &spec.Own{Proxy: spec.ProxyConfig{IPVSScheduler: name}, Nodes: []string{"n1"}},
		Given:  h.given(),
		Steps:  []spec.Step{{Check: eachFamily(h.show)}},
	}
}

// standard makes a scenario that of the default scheduler, which is judged in the cluster that all share.
func standard(s spec.Scenario) spec.Scenario {
	s.ID, s.Priority, s.Own = "rs-ipvs-scheduler", spec.P0, nil
	return s
}

// endpoints are three, on three nodes.
func endpoints() []store.Object {
	return []store.Object{Backend("a1", "n1"), Backend("a2", "n2"), Backend("a3", "n3")}
}

// many is how many clients, addresses or ports show that a hash tells them apart. That all of them lead to one of three
// endpoints would be a coincidence of one in 3^7.
const many = 8

// several are many objects that differ in their names.
func several[T store.Object](name string, make func(name string) T) []store.Object {
	var all []store.Object
	for i := range many {
		all = append(all, make(fmt.Sprintf("%s-%d", name, i)))
	}
	return all
}

func clients() []store.Object {
	return several("client", func(name string) store.Object { return Pod(name, "n1") })
}

func services() []store.Object {
	return several("web", func(name string) store.Object { return Service(name, Selecting("web")) })
}

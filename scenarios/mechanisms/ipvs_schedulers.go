// SPDX-License-Identifier: Apache-2.0

package mechanisms

import (
	"fmt"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// schedulers are the scenarios, one for each scheduler. Endpoints all have the same weight, so one that heeds weights
// does what the one without them does.
func schedulers() []spec.Scenario {
	return []spec.Scenario{
		standard(scheduler("rr", ipvsInTurn)),
		scheduler("wrr", ipvsInTurn),
		scheduler("lc", leastBusy),
		scheduler("wlc", leastBusy),
		scheduler("sed", leastBusy),
		scheduler("nq", leastBusy),
		scheduler("sh", bySource),
		scheduler("dh", byDestination),
		scheduler("mh", byHash),
	}
}

func scheduler(name string, h habit) spec.Scenario {
	return spec.Scenario{
		ID:      "rs-ipvs-scheduler-" + name,
		Needs:   []spec.Feature{spec.IPVS, spec.ClusterIP},
		Cluster: &spec.ClusterConfig{Proxy: spec.ProxyConfig{IPVSScheduler: name}, Nodes: []string{"n1"}},
		Given:   h.given(),
		Steps:   []spec.Step{{Check: EachFamily(h.show)}},
	}
}

// standard makes a scenario that of the default scheduler, which is judged in the cluster that all share.
func standard(s spec.Scenario) spec.Scenario {
	s.ID, s.Cluster = "rs-ipvs-scheduler", nil
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

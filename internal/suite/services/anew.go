// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/viplab/viplab/internal/suite/services/oracle"
	"github.com/viplab/viplab/lab/traffic"
	"github.com/viplab/viplab/suite/spec"
)

// asAnew is the rule about what the API leaves open: whatever an implementation does there, the state decides it, not
// the way that led to the state.
var asAnew = oracle.Rule{Name: "as-made-anew",
	Text:   "The control loop ensures that the rules on each node match the desired state.",
	Source: "https://kubernetes.io/docs/reference/networking/virtual-ips/"}

// mostAnew is the number of questions that are asked before and after the objects of a state are made anew, and anewOne
// that of histories among which one ends so. It takes as long as another state.
const mostAnew, anewOne = 12, 4

// endsAnew reports whether a case ends with makeAnew.
func (c Case) endsAnew(p Playing) bool {
	return len(c.States) > 1 && (p.Everything || c.seed()%anewOne == 0)
}

// makeAnew asks questions that the API leaves open, deletes the objects of the last state, creates the same ones with
// other ClusterIPs and NodePorts, and asks again.
func (p *player) makeAnew(ctx context.Context, w spec.World) error {
	rows, err := p.outcomes(ctx, w)
	if len(rows) == 0 || err != nil {
		return err
	}
	last, endpoints := p.now, endpointsOf(w)
	last.Life = nil
	bare := State{Pods: last.Pods}
	if err := p.make(ctx, w, last, bare); err != nil {
		return err
	}
	if err := w.Settle(ctx); err != nil {
		return err
	}
	p.anew = true
	if err := p.make(ctx, w, bare, last); err != nil {
		return err
	}
	if err := w.Settle(ctx); err != nil {
		return err
	}
	if !slices.Equal(endpoints, endpointsOf(w)) {
		return nil // a Service that has lost its selector keeps the slices that it had
	}
	return w.Expect(ctx, slices.DeleteFunc(rows, func(r spec.Row) bool { return lacksNodePort(w, r) })...)
}

// lacksNodePort reports whether a row asks a NodePort that its Service does not have. A Service keeps those that it had
// before allocateLoadBalancerNodePorts became false, and gets none when it is made anew
// (https://kubernetes.io/docs/concepts/services-networking/service/#load-balancer-nodeport-allocation).
func lacksNodePort(w spec.World, r spec.Row) bool {
	if r.To.Kind != spec.NodePortOf {
		return false
	}
	_, err := w.Resolve(r.To, r.Family, r.Protocol())
	return err != nil
}

// endpointsOf returns a text for each endpoint of each Service, sorted.
func endpointsOf(w spec.World) (all []string) {
	_, endpointSlices, _ := objects(w)
	for _, s := range endpointSlices {
		for _, e := range s.Endpoints {
			text, err := json.Marshal([]any{s.Labels[discoveryv1.LabelServiceName], s.AddressType, s.Ports, e})
			if err != nil {
				panic(err) // API objects: cannot happen
			}
			all = append(all, string(text))
		}
	}
	slices.Sort(all)
	return all
}

// outcomes asks questions that the API leaves open, and returns rows that want the outcomes that were seen.
func (p *player) outcomes(ctx context.Context, w spec.World) ([]spec.Row, error) {
	asked := p.sample(p.undecided(w, p.questions(w, p.state(w))))
	var rows []spec.Row
	for i := range asked[:min(len(asked), mostAnew)] {
		r := asked[i].bare()
		r.Rule = asked[i].label(asAnew)
		r.Want = spec.Reply | spec.NotServed
		seen, err := w.Observe(ctx, r)
		if err != nil {
			return nil, err
		}
		if len(seen) > 0 {
			rows = append(rows, p.wantAlike(r, seen[0].Outcome))
			p.playing.Coverage.addAnswer(oracle.Answer{Rules: []oracle.Rule{asAnew}})
		}
	}
	return rows, nil
}

// wantAlike makes a row want an outcome that was seen. Which pod answers is not compared.
func (p *player) wantAlike(r spec.Row, seen traffic.Outcome) spec.Row {
	r.Want = likeness(seen)
	if r.Want == spec.Reply {
		for _, pod := range p.now.Pods {
			r.Servers = append(r.Servers, pod.Name)
		}
	}
	return r
}

// likeness returns the outcomes that are not told apart from one: what a router says of a packet that no node takes is
// not the proxier's.
func likeness(o traffic.Outcome) spec.Want {
	for _, alone := range []spec.Want{spec.Reply, spec.Refused} {
		if alone.Allows(o) {
			return alone
		}
	}
	return spec.NotServed &^ spec.Refused
}

// undecided returns those of the questions whose outcome the API leaves to implementations, and the state decides. In
// a Service whose endpoints may answer or not, or at an address of two Services, chance or order decides. Over SCTP,
// silence is not proved.
func (p *player) undecided(w spec.World, all []question) []question {
	vague, services := map[string]bool{}, map[string]string{}
	for _, q := range all {
		if q.answer.Verdict != oracle.Open && q.answer.Verdict != oracle.NotServed {
			_, known := p.servers(w, q.answer.Endpoints, q.to.protocol)
			vague[q.to.service] = vague[q.to.service] || !known || q.answer.Verdict == oracle.MayBeServed
		}
		at := fmt.Sprint(q.to.addr, q.to.protocol)
		if other, found := services[at]; found && other != q.to.service {
			vague[other], vague[q.to.service] = true, true
		}
		services[at] = q.to.service
	}
	return slices.DeleteFunc(slices.Clone(all), func(q question) bool {
		left := q.answer.Verdict == oracle.DroppedOrRefused ||
			q.answer.Verdict == oracle.Open && slices.Contains(leftToState, q.answer.Rule().Name)
		alike := q.to.kind != "gone" && q.to.kind != "elsewhere" && q.to.protocol != corev1.ProtocolSCTP
		return !left || !alike || vague[q.to.service] || !p.concerns(w, &q)
	})
}

// leftToState are the rules that leave open whether an address is served.
var leftToState = []string{"ipmode-proxy", "foreign-family"}

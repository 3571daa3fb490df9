// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// web is a NodePort Service of UDP with affinity, and udpPod a pod behind it.
func web(options ...ServiceOption) *corev1.Service {
	return Service("web", append([]ServiceOption{NodePort(), Affinity(), UDPPort(80, 8080)}, options...)...)
}

func udpPod(name, node string) *corev1.Pod { return Pod(name, node, App("web"), UDP(8080)) }

func keyedBySource() spec.Scenario {
	return spec.Scenario{
		ID: "affinity-keyed-by-source", Needs: []spec.Feature{spec.NodePort, spec.SessionAffinity},
		Given: []store.Object{
			udpPod("a1", "n1"), web(), Service("other", Selecting("web"), NodePort(), Affinity(), UDPPort(80, 8080)),
		},
		Steps: []spec.Step{{Check: func(ctx context.Context, w spec.World) error {
			first, second := spec.NodePortAt("n1", "web", 80), spec.NodePortAt("n1", "other", 80)
			all := &affinityCrowd{w: w, pods: three[:1]}
			if err := each(ctx, w, func(f lab.Family) error {
				_, err := all.send(ctx, f, first, 1, members)
				return err
			}); err != nil {
				return fmt.Errorf("one pod: %w", err)
			}
			spec.MustDo(w.Apply(udpPod("a2", "n2"), udpPod("a3", "n3")))
			all.pods = three
			return each(ctx, w, func(f lab.Family) error {
				spec.TryDo(loyal(ctx, all, f, first))
				return several(ctx, all, f, second)
			})
		}}},
	}
}

// acrossDoors is about clients that come to one Service by several doors, of which the API does not say whether they
// share a record: its ports, or its addresses.
func acrossDoors(id, what string, given []store.Object, do []spec.Action, doors ...affinityDoor) spec.Scenario {
	// In the other order, a proxier that takes turns at all doors together gives a client another pod as well.
	back := slices.Clone(doors)
	slices.Reverse(back)
	return spec.Scenario{
		ID: id, Needs: []spec.Feature{spec.ClusterIP, spec.NodePort, spec.LoadBalancer, spec.SessionAffinity},
		Given: given,
		Steps: []spec.Step{{Do: do, Check: func(ctx context.Context, w spec.World) error {
			all := &affinityCrowd{w: w, pods: three}
			return each(ctx, w, func(f lab.Family) error {
				first, second := spec.Try(all.round(ctx, f, doors)), spec.Try(all.round(ctx, f, back))
				shared := true
				for door, pods := range first {
					if !slices.Equal(pods, second[door]) {
						return fmt.Errorf("%s: clients do not stay with their pods: %v, then %v", door, pods,
							second[door])
					}
					shared = shared && slices.Equal(pods, first[doors[0].in(f)])
				}
				w.Note(fmt.Sprintf("affinity and %s of a Service over %s: a client has one pod for all of them: %t",
					what, f, shared))
				return nil
			})
		}}},
	}
}

// round makes all members come by each door, after a stranger, and returns their pods by door.
func (c *affinityCrowd) round(ctx context.Context, f lab.Family, doors []affinityDoor) (map[string][]string, error) {
	pods := map[string][]string{}
	for _, d := range doors {
		got, err := c.sendAfterStranger(ctx, f, d)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", d.in(f), err)
		}
		pods[d.in(f)] = got
	}
	return pods, nil
}

func acrossPorts() spec.Scenario {
	return acrossDoors("affinity-across-ports", "two ports",
		[]store.Object{udpPod("a1", "n1"), udpPod("a2", "n2"), udpPod("a3", "n3"), web(UDPPort(81, 8080))}, nil,
		affinityDoor{"client", spec.NodePortAt("n1", "web", 80)},
		affinityDoor{"client", spec.NodePortAt("n1", "web", 81)})
}

func acrossFrontends() spec.Scenario {
	return acrossDoors("affinity-across-frontends", "three addresses",
		[]store.Object{udpPod("a1", "n1"), udpPod("a2", "n2"), udpPod("a3", "n3"), web(LoadBalancer())},
		IngressViaN1("web", "203.0.113.84", "2001:db8:113::84"),
		affinityDoor{"client", spec.NodePortAt("n1", "web", 80)}, affinityDoor{"client", spec.IngressOf("web", 80)},
		affinityDoor{"n1", spec.ClusterIPOf("web", 80)})
}

// each settles the cluster and does something for each family, for all at once.
func each(ctx context.Context, w spec.World, do func(lab.Family) error) error {
	if err := w.Settle(ctx); err != nil {
		return err
	}
	families := w.Lab().Stack().Families()
	errs := make([]error, len(families))
	var wg sync.WaitGroup
	for i, f := range families {
		wg.Go(func() {
			if err := spec.Catch(func() error { return do(f) }); err != nil {
				errs[i] = fmt.Errorf("over %s: %w", f, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// loyal wants all clients to be at the only pod that was there when they first came.
func loyal(ctx context.Context, all *affinityCrowd, f lab.Family, to spec.Target) error {
	got := spec.Try(all.send(ctx, f, to, 1, members))
	if n := tally(got); n["a1"] != len(got) {
		return fmt.Errorf("clients of a1 are moved by pods that join: %v", n)
	}
	return nil
}

// several wants the clients, who come for the first time, to use more than one pod, and each to stay with its own. That
// fair draws give sixty clients the same of three pods happens once in 10^28 times.
func several(ctx context.Context, all *affinityCrowd, f lab.Family, to spec.Target) error {
	got := spec.Try(all.send(ctx, f, to, 1, members))
	if n := tally(got); len(n) == 1 {
		return fmt.Errorf("all clients of another Service are at the same pod: %v", n)
	}
	again := spec.Try(all.sendAfterStranger(ctx, f, affinityDoor{"client", to}))
	if !slices.Equal(got, again) {
		return fmt.Errorf("clients are moved from pod to pod: %v, then %v", got, again)
	}
	return nil
}

// most is more clients than the recent match of iptables remembers for an endpoint.
const most = 120

func manyClients() spec.Scenario {
	return spec.Scenario{
		ID: "affinity-many-clients", Needs: []spec.Feature{spec.NodePort, spec.SessionAffinity},
		Given: []store.Object{udpPod("a1", "n1"), web()},
		Steps: []spec.Step{{Check: func(ctx context.Context, w spec.World) error {
			all := &affinityCrowd{w: w, pods: three[:1]}
			to := spec.NodePortAt("n1", "web", 80)
			if err := each(ctx, w, func(f lab.Family) error {
				_, err := all.send(ctx, f, to, 1, most)
				return err
			}); err != nil {
				return fmt.Errorf("one pod: %w", err)
			}
			spec.MustDo(w.Apply(udpPod("a2", "n2")))
			all.pods = three[:2]
			return each(ctx, w, func(f lab.Family) error {
				got := spec.Try(all.send(ctx, f, to, 1, most))
				if n := tally(got); n["a1"] != most {
					return fmt.Errorf("of %d clients of a1 only %d are still with it", most, n["a1"])
				}
				return nil
			})
		}}},
	}
}

// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/observe"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// memory is the timeout of a Service, the shortest there is. A proxier may round it to the resolution of its clock.
const memory, rounding = time.Second, 100 * time.Millisecond

// remembers sets sessionAffinityConfig.clientIP.timeoutSeconds.
func remembers(d time.Duration) ServiceOption {
	return func(s *corev1.Service) {
		seconds := int32(d / time.Second)
		s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
			ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds},
		}
	}
}

func timeout() spec.Scenario {
	return spec.Scenario{
		ID: "affinity-timeout", Waits: true, Needs: []spec.Feature{spec.NodePort, spec.SessionAffinity},
		Given: []store.Object{udpPod("a1", "n1"), udpPod("a2", "n2"), web(remembers(memory))},
		Steps: []spec.Step{{Check: func(ctx context.Context, w spec.World) error {
			all := &affinityCrowd{w: w, pods: three[:2]}
			return each(ctx, w, func(f lab.Family) error {
				return forgets(ctx, all, f, spec.NodePortAt("n1", "web", 80), memory)
			})
		}}},
	}
}

// forgets makes all clients come, and wants them to be forgotten after the timeout and not before.
func forgets(ctx context.Context, all *affinityCrowd, f lab.Family, to spec.Target, timeout time.Duration) error {
	began := time.Now()
	got := spec.Try(all.send(ctx, f, to, 1, members))
	return forgotten(ctx, all, f, to, got, began.Add(timeout-rounding), timeout)
}

// forgotten makes the clients of the pods come for a second time, two by two, until one of them gets another pod, which
// must not be earlier than given. Each comes back once, so none prolongs its stay. At most half of them come back
// before all must be forgotten; that none of the others is drawn to another one of two pods happens once in 2^30 times.
func forgotten(ctx context.Context, all *affinityCrowd, f lab.Family, to spec.Target, pods []string, earliest time.Time,
	timeout time.Duration) error {
	came := time.Now()
	next := 1
	var verdict error
	ctx, cancel := context.WithTimeout(ctx, timeout+Patience())
	defer cancel()
	waited := observe.Await(ctx, nil, func(ctx context.Context) error {
		left := time.Now()
		switch {
		case next > members/2 && left.Before(came.Add(timeout)):
			return fmt.Errorf("half of the clients wait for the end of their timeout of %v", timeout)
		case next >= members:
			verdict = fmt.Errorf("none of %d clients is sent elsewhere, %v after they came", members, left.Sub(came))
			return nil
		}
		again, err := all.send(ctx, f, to, next, next+1)
		if err != nil {
			return err
		}
		moved := !slices.Equal(again, pods[next-1:next+1])
		next += 2
		switch {
		case moved && time.Now().Before(earliest):
			verdict = fmt.Errorf("a client is sent elsewhere %v before its timeout of %v", time.Until(earliest), timeout)
		case !moved:
			return fmt.Errorf("%v after they came, clients are still remembered", left.Sub(came))
		}
		return nil
	})
	if verdict != nil {
		return verdict
	}
	return waited
}

// long is a timeout that no scenario waits for, the default of the API.
const long = 3 * time.Hour

func timeoutShortened() spec.Scenario {
	return spec.Scenario{
		ID: "affinity-timeout-shortened", Waits: true, Needs: []spec.Feature{spec.NodePort, spec.SessionAffinity},
		Given: []store.Object{udpPod("a1", "n1"), udpPod("a2", "n2"), web(remembers(long))},
		Steps: []spec.Step{{Rows: atWeb(), Check: func(ctx context.Context, w spec.World) error {
			all := &affinityCrowd{w: w, pods: three[:2]}
			began := time.Now()
			pods := spec.Try(all.come(ctx, members, webDoor))
			RunActions(ctx, w, Edit("web", remembers(memory)))
			return each(ctx, w, func(f lab.Family) error {
				return forgotten(ctx, all, f, webDoor.to, pods[webDoor.in(f)],
					began.Add(memory-rounding), memory)
			})
		}}},
	}
}

// timeoutLengthened knows that the former timeout is over when another Service, which still has it, forgets clients
// that have come later.
func timeoutLengthened() spec.Scenario {
	return spec.Scenario{
		ID: "affinity-timeout-lengthened", Waits: true, Needs: []spec.Feature{spec.NodePort, spec.SessionAffinity},
		Given: []store.Object{
			udpPod("a1", "n1"), udpPod("a2", "n2"), web(), Service("brief", Selecting("web"), NodePort(), Affinity(),
				UDPPort(80, 8080)),
		},
		Steps: []spec.Step{{Rows: atWeb(), Check: func(ctx context.Context, w spec.World) error {
			all := &affinityCrowd{w: w, pods: three[:2]}
			former, pods := rememberedBriefly(ctx, all)
			spec.TryDo(each(ctx, w, func(f lab.Family) error {
				return forgets(ctx, all, f, spec.NodePortAt("n1", "brief", 80), former)
			}))
			again := spec.Try(all.come(ctx, members, webDoor))
			for door, by := range pods {
				if moved := differing(by, again[door]); moved > 0 {
					return fmt.Errorf("%s: after the former timeout of %v, %d of %d clients are sent elsewhere, although "+
						"timeoutSeconds was made longer before", door, former, moved, members)
				}
			}
			return nil
		}}},
	}
}

// rememberedBriefly lets clients come to web, and makes the timeout longer before the former one is over. On a machine
// where that takes too long, it tries again with a longer one.
func rememberedBriefly(ctx context.Context, all *affinityCrowd) (former time.Duration, pods map[string][]string) {
	w := all.w
	for former = memory; ; former *= 2 {
		RunActions(ctx, w, Apply(web(remembers(former))), Edit("brief", remembers(former)))
		spec.TryDo(w.Settle(ctx))
		began := time.Now()
		pods = spec.Try(all.come(ctx, members, webDoor))
		RunActions(ctx, w, Edit("web", remembers(long)))
		spec.TryDo(w.Settle(ctx))
		if took := time.Since(began); took < former-rounding {
			return former, pods
		} else if former > Patience() {
			panic(spec.HarnessErrorf("a change of the timeout took %v", took))
		}
		RunActions(ctx, w, Delete("Service", "web")) // and with it all records
	}
}

// webDoor is the NodePort of web.
var webDoor = affinityDoor{"client", spec.NodePortAt("n1", "web", 80)}

// atWeb asks it once.
func atWeb() []spec.Row {
	return []spec.Row{{From: webDoor.from, To: webDoor.to, Proto: "udp", Servers: three}}
}

// differing is how many elements of two lists differ.
func differing(a, b []string) (n int) {
	for i := range a {
		if a[i] != b[i] {
			n++
		}
	}
	return n
}

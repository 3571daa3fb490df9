// SPDX-License-Identifier: Apache-2.0

package external

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// writesRefused takes a second for the sync period, the least that kube-proxy accepts.
func writesRefused() spec.Scenario {
	return spec.Scenario{
		ID: "hc-writes-refused", Cluster: &spec.ClusterConfig{
			Proxy: spec.ProxyConfig{SyncPeriod: time.Second}, Nodes: []string{"n1"},
		},
		Needs: append([]spec.Feature{spec.HealthCheckBody}, needs...),
		Given: []store.Object{Backend("a1", "n1"), Service("web", LoadBalancer(), ETPLocal())},
		Steps: []spec.Step{
			{Name: "all is well", Check: proxierTells(true)},
			{Name: "no write of the last family succeeds", Check: func(ctx context.Context, w spec.World) error {
				families := w.Lab().Stack().Families()
				refusal := spec.Must(w.ProxierControl("n1").RefuseWrites(ctx, families[len(families)-1]))
				RunActions(ctx, w, Apply(Service("new", Selecting("web"))))
				unwell := eventually(ctx, w, proxierTells(false))
				spec.MustDo(refusal.End())
				if unwell != nil {
					RunActions(ctx, w, Delete("Service", "new")) // the next retry may be an hour away
					return errors.Join(unwell, w.Settle(ctx))
				}
				return eventually(ctx, w, proxierTells(true))
			}},
		},
	}
}

// eventually waits until a check holds.
func eventually(ctx context.Context, w spec.World, check Check) error {
	return Eventually(ctx, func(ctx context.Context) error { return check(ctx, w) })
}

// proxierTells wants the health-check port of Service web on n1, and the port of the proxier itself if it has one, to
// say whether the proxier is healthy.
func proxierTells(healthy bool) Check {
	code := http.StatusServiceUnavailable
	if healthy {
		code = http.StatusOK
	}
	return EachFamily(func(ctx context.Context, w spec.World, f lab.Family) error {
		if err := tells(ctx, w, "n1", f, 1, healthy); err != nil || !w.Features()[spec.ProxierHealthz] {
			return err
		}
		at := netip.AddrPortFrom(w.Lab().Node("n1").Addr(f), proxierPort)
		for _, path := range []string{"/healthz", "/livez"} {
			if got := spec.Try(AskHealth(ctx, w, "client", path, at)); got.Code != code {
				return fmt.Errorf("port %d answers %s to %s; want %s", proxierPort, inWords(got.Code), path, inWords(code))
			}
		}
		return nil
	})
}

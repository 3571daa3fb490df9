// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"fmt"
	"io"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// mostTraced is how many Services TraceServices asks. A trace takes a second or two.
const mostTraced = 3

// TraceServices asks Services of a namespace, as a pod there does or else the first node, and writes the walk of the
// first packet of each request.
func (l *Lab) TraceServices(ctx context.Context, namespace string, w io.Writer) {
	from := Place{Name: l.standing.Cluster().Lab().Nodes()[0].Name()}
	s := l.standing.Cluster().Store().Snapshot()
	for _, p := range s.Pods {
		if p.Namespace == namespace && p.Status.Phase == corev1.PodRunning && !p.Spec.HostNetwork {
			from = Place{Name: p.Name, Namespace: namespace}
			break
		}
	}
	traced := 0
	for _, svc := range s.Services {
		headless := slices.Contains(svc.Spec.ClusterIPs, corev1.ClusterIPNone)
		if svc.Namespace != namespace || headless || len(svc.Spec.ClusterIPs) == 0 || len(svc.Spec.Ports) == 0 {
			continue
		}
		if traced++; traced > mostTraced {
			return
		}
		fmt.Fprintf(w, "\nthe packet of a new request from %s to svc/%s:\n", from.Name, svc.Name)
		from.Namespace = namespace
		r, err := l.traceRequest(ctx, TraceArgs{ProbeArgs: ProbeArgs{From: from, To: "svc/" + svc.Name}}, w)
		if err == nil {
			err = r.Print(w)
		}
		if err != nil {
			fmt.Fprintf(w, "it could not be traced: %v\n", err)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package netpol

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
)

// startProxier creates a Service for each pod, with the pod's ports, starts the proxier on every node and waits until
// all nodes serve the Services.
func (b *Bench) startProxier(ctx context.Context) error {
	if b.options.Proxier == nil {
		return nil
	}
	for _, pod := range Pods {
		s := serviceObject(pod)
		if err := b.cluster.Store().Apply(s); err != nil {
			return err
		}
		s, ok := store.Get[*corev1.Service](b.cluster.Store(), s.Namespace, s.Name)
		if !ok {
			return fmt.Errorf("the Service of pod %s has vanished", pod)
		}
		for _, text := range s.Spec.ClusterIPs {
			a, err := netip.ParseAddr(text)
			if err != nil {
				return fmt.Errorf("the Service of pod %s: %w", pod, err)
			}
			b.clusterIPs[lab.FamilyOf(a)] = append(b.clusterIPs[lab.FamilyOf(a)], a)
		}
	}
	for _, n := range b.cluster.Lab().Nodes() {
		in, err := b.start(ctx, b.options.Proxier, n)
		if err != nil {
			return err
		}
		if err := in.Apply(ctx, b.view.Snapshot()); err != nil {
			return fmt.Errorf("%s: %s: %w", n.Name(), b.options.Proxier.Name(), err)
		}
	}
	return nil
}

func serviceObject(pod string) *corev1.Service {
	namespace, name, _ := strings.Cut(pod, "/")
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "to-" + name},
		Spec: corev1.ServiceSpec{Selector: map[string]string{"pod": name},
			IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicyPreferDualStack)},
	}
	for _, p := range Ports {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{
			Name: p.name(), Protocol: p.Protocol, Port: p.Number, TargetPort: intstr.FromInt32(p.Number),
		})
	}
	return s
}

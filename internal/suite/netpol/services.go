// SPDX-License-Identifier: Apache-2.0

package netpol

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/suite/spec"
)

// services are a Service for each pod of the grid, with the pod's own ports, and the proxier that serves them.
type services struct {
	instances []spec.Instance
	addrs     map[lab.Family][]netip.Addr // by the number of the pod
}

// serve makes Services and starts the proxier on every node, which has done its first work when it returns.
func (b *Bench) serve(ctx context.Context) error {
	if b.options.Proxier == nil {
		return nil
	}
	b.services.addrs = map[lab.Family][]netip.Addr{}
	for _, pod := range Pods {
		namespace, name, _ := strings.Cut(pod, "/")
		if err := b.cluster.Store().Apply(serviceObject(namespace, name)); err != nil {
			return err
		}
		s, ok := store.Get[*corev1.Service](b.cluster.Store(), namespace, serviceName(name))
		if !ok {
			return fmt.Errorf("the Service of pod %s has vanished", pod)
		}
		for _, text := range s.Spec.ClusterIPs {
			a, err := netip.ParseAddr(text)
			if err != nil {
				return fmt.Errorf("the Service of pod %s: %w", pod, err)
			}
			b.services.addrs[lab.FamilyOf(a)] = append(b.services.addrs[lab.FamilyOf(a)], a)
		}
	}
	for _, n := range b.cluster.Lab().Nodes() {
		in, err := b.start(ctx, b.options.Proxier, n)
		if err != nil {
			return err
		}
		b.services.instances = append(b.services.instances, in)
		if err := in.Apply(ctx, b.view.Snapshot()); err != nil {
			return fmt.Errorf("%s: %s: %w", n.Name(), b.options.Proxier.Name(), err)
		}
	}
	return nil
}

func serviceName(pod string) string { return "to-" + pod }

func serviceObject(namespace, pod string) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: serviceName(pod)},
		Spec: corev1.ServiceSpec{Selector: map[string]string{"pod": pod},
			IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicyPreferDualStack)},
	}
	for _, p := range Ports {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{
			Name: p.name(), Protocol: p.Protocol, Port: p.Number, TargetPort: intstr.FromInt32(p.Number),
		})
	}
	return s
}

// stop ends the proxier.
func (s *services) stop(ctx context.Context) error {
	var errs []error
	for _, in := range s.instances {
		errs = append(errs, in.Stop(ctx))
	}
	return errors.Join(errs...)
}

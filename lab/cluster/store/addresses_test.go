// SPDX-License-Identifier: Apache-2.0

package store

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/lab"
)

func newRange(name string, cidrs ...string) *networkingv1.ServiceCIDR {
	return &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: cidrs},
	}
}

func withIP(ip string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.ClusterIP = ip }
}

func TestASecondServiceCIDR(t *testing.T) {
	s := newTestStore(t, Config{ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/30")}})
	if err := s.Apply(newService("early", withIP("192.0.2.10"))); err == nil || !strings.Contains(err.Error(),
		"The range of valid IPs is 10.0.0.0/30") {
		t.Errorf("an address of no range: %v", err)
	}
	apply(t, s, newRange("more", "192.0.2.0/29"))
	apply(t, s, newService("a"), newService("b"), newService("wish", withIP("192.0.2.5")))
	apply(t, s, newService("c")) // the first range has two addresses
	second := netip.MustParsePrefix("192.0.2.0/29")
	if ip := netip.MustParseAddr(get[*corev1.Service](t, s, "c").Spec.ClusterIP); !second.Contains(ip) {
		t.Errorf("c has %s, want one of the second range", ip)
	}

	if err := s.Delete(KindServiceCIDR, "", "more"); err != nil {
		t.Fatal(err)
	}
	c := get[*networkingv1.ServiceCIDR](t, s, "more")
	if c.DeletionTimestamp == nil || c.Status.Conditions[0].Status != metav1.ConditionFalse ||
		c.Status.Conditions[0].Reason != networkingv1.ServiceCIDRReasonTerminating {
		t.Errorf("a range in use that is being deleted: %+v", c)
	}
	if err := s.Apply(newService("late", withIP("192.0.2.6"))); err == nil {
		t.Error("a range that is being deleted gave an address")
	}
	apply(t, s, newService("wish", withIP("192.0.2.5"), func(s *corev1.Service) { s.Labels = app("x") })) // it keeps its own
	for _, name := range []string{"wish", "c"} {
		if _, ok := Get[*networkingv1.ServiceCIDR](s, "", "more"); !ok {
			t.Errorf("the range is gone before Service %s", name)
		}
		if err := s.Delete(KindService, "default", name); err != nil {
			t.Fatal(err)
		}
	}
	if c, ok := Get[*networkingv1.ServiceCIDR](s, "", "more"); ok {
		t.Errorf("the range that nothing needs stays: %+v", c)
	}
}

// As in Kubernetes, there are no NodePorts for a Service that gets no address.
func TestNoAddressNoPort(t *testing.T) {
	err := newTestStore(t, Config{}).Apply(newService("a", withIP("192.0.2.1"), func(s *corev1.Service) {
		s.Spec.Type, s.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, 1
	}))
	if err == nil || !strings.Contains(err.Error(), "clusterIPs") || strings.Contains(err.Error(), "nodePort") {
		t.Errorf("got %v", err)
	}
}

func TestAServiceCIDRWithinAnother(t *testing.T) {
	s := newTestStore(t, Config{})
	apply(t, s, newRange("part", "10.96.0.0/24"), newService("a", withIP("10.96.0.77")))
	if err := s.Delete(KindServiceCIDR, "", "part"); err != nil {
		t.Fatal(err)
	}
	if _, ok := Get[*networkingv1.ServiceCIDR](s, "", "part"); ok {
		t.Error("it stays although the cluster's own range has its addresses")
	}
}

func TestServiceCIDRsThatAreRefused(t *testing.T) {
	s := newTestStore(t, Config{Stack: lab.Dual})
	for want, cidrs := range map[string][]string{
		"at least one CIDR":  nil,
		"up to 2":            {"10.0.0.0/24", "fd00::/64", "10.0.1.0/24"},
		"for each IP family": {"10.0.0.0/24", "10.0.1.0/24"},
		"must be a valid":    {"10.0.0"},
		"must not have bits": {"10.0.0.1/24"},
	} {
		if err := s.Apply(newRange("x", cidrs...)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", cidrs, err, want)
		}
	}
	apply(t, s, newRange("x", "10.0.0.0/24"))
	apply(t, s, newRange("x", "10.0.0.0/24", "fd00::/64"))
	if err := s.Apply(newRange("x", "10.0.0.0/24", "fd01::/64")); err == nil || !strings.Contains(err.Error(), "immutable") {
		t.Errorf("a range that changes: %v", err)
	}
}

func TestIPAddresses(t *testing.T) {
	s := newTestStore(t, Config{Stack: lab.Dual, IPAddresses: true})
	dual := corev1.IPFamilyPolicyRequireDualStack
	apply(t, s, newService("a", withIP("10.96.0.7"), func(s *corev1.Service) { s.Spec.IPFamilyPolicy = &dual }))
	ips := get[*corev1.Service](t, s, "a").Spec.ClusterIPs
	for i, family := range []string{"IPv4", "IPv6"} {
		o := get[*networkingv1.IPAddress](t, s, ips[i])
		if o.Spec.ParentRef.Resource != "services" || o.Spec.ParentRef.Name != "a" ||
			o.Labels[networkingv1.LabelIPAddressFamily] != family {
			t.Errorf("%s: %+v", ips[i], o)
		}
	}
	if err := s.Delete(KindIPAddress, "", ips[0]); err != nil {
		t.Fatal(err)
	}
	get[*networkingv1.IPAddress](t, s, ips[0]) // its Service has it still
	if err := s.Delete(KindService, "default", "a"); err != nil {
		t.Fatal(err)
	}
	for _, ip := range ips {
		if o, ok := Get[*networkingv1.IPAddress](s, "", ip); ok {
			t.Errorf("it outlives its Service: %+v", o)
		}
	}
	six := &networkingv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Name: "fe80::1"}}
	six.Spec.ParentRef = &networkingv1.ParentReference{Resource: "gateways", Name: "g"}
	apply(t, s, six)
	claim := &networkingv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Name: "10.96.0.7"}}
	if err := s.Apply(claim); err == nil || !strings.Contains(err.Error(), "parentRef") {
		t.Errorf("without a parent: %v", err)
	}
	claim.Spec.ParentRef = &networkingv1.ParentReference{Resource: "gateways", Namespace: "default", Name: "g"}
	apply(t, s, claim)
	if err := s.Apply(newService("a", withIP("10.96.0.7"))); err == nil ||
		!strings.Contains(err.Error(), `gateways "default/g" has it`) {
		t.Errorf("an address that is claimed: %v", err)
	}
}

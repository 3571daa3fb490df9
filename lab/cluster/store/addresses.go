// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// addressManager is the value of the label that IPAddresses of Services have (pkg/registry/core/service/ipallocator).
	addressManager = "ipallocator.k8s.io"
	// rangeFinalizer keeps a ServiceCIDR until no Service needs it (pkg/controller/servicecidrs).
	rangeFinalizer = "networking.k8s.io/service-cidr-finalizer"
	// defaultRange is the name of the ServiceCIDR with the cluster's own ranges.
	defaultRange = "kubernetes"
)

// holder is what holds an IP address.
type holder struct {
	kind string
	key  Key
}

func (h holder) String() string { return fmt.Sprintf("%s %q", h.kind, h.key) }

// ownerOf returns what holds an address of a range of ClusterIPs: a Service, or someone else who has made an IPAddress.
func (s *Store) ownerOf(ip netip.Addr) (holder, bool) {
	if key, ok := s.index.addresses[ip]; ok {
		return holder{"Service", key}, true
	}
	if o, ok := s.tables[KindIPAddress].get(Key{"", ip.String()}); ok && !isManaged(o) {
		parent := o.(*networkingv1.IPAddress).Spec.ParentRef
		return holder{parent.Resource, Key{parent.Namespace, parent.Name}}, true
	}
	return holder{}, false
}

func isManaged(o Object) bool { return o.GetLabels()[networkingv1.LabelManagedBy] == addressManager }

// serviceRanges lists the ranges of ClusterIPs of a family: the cluster's own, and those of other ServiceCIDRs by name.
// A ServiceCIDR that is being deleted gives no more addresses.
func (s *Store) serviceRanges(family corev1.IPFamily) []netip.Prefix {
	var out []netip.Prefix
	if own, ok := s.ranges[family]; ok {
		out = append(out, own)
	}
	for _, o := range s.tables[KindServiceCIDR].objectsInOrder() {
		if o.GetName() == defaultRange || o.GetDeletionTimestamp() != nil {
			continue
		}
		for _, p := range prefixesOf(o.(*networkingv1.ServiceCIDR)) {
			if familyOf(p.Addr()) == family {
				out = append(out, p)
			}
		}
	}
	return out
}

func prefixesOf(c *networkingv1.ServiceCIDR) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range c.Spec.CIDRs {
		if p, err := netip.ParsePrefix(text); err == nil {
			out = append(out, p)
		}
	}
	return out
}

func joined[T fmt.Stringer](all []T) string {
	var out []string
	for _, one := range all {
		out = append(out, one.String())
	}
	return strings.Join(out, ", ")
}

// admitServiceCIDR checks a range of ClusterIPs, which is ready at once.
func (tx *Tx) admitServiceCIDR(c, old *networkingv1.ServiceCIDR) field.ErrorList {
	path := field.NewPath("spec", "cidrs")
	errs := validateRanges(c.Spec.CIDRs, path)
	if old != nil {
		errs = append(errs, keepsRanges(c.Spec.CIDRs, old.Spec.CIDRs, path)...)
	}
	if c.DeletionTimestamp == nil && !slices.Contains(c.Finalizers, rangeFinalizer) {
		c.Finalizers = append(c.Finalizers, rangeFinalizer)
	}
	if len(c.Status.Conditions) == 0 {
		tx.setRangeCondition(c, metav1.ConditionTrue, "", "Kubernetes Service CIDR is ready")
	}
	return errs
}

func (tx *Tx) setRangeCondition(c *networkingv1.ServiceCIDR, ready metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{
		Type: networkingv1.ServiceCIDRConditionReady, Status: ready, Reason: reason, Message: message,
		LastTransitionTime: tx.now,
	})
}

func validateRanges(cidrs []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch len(cidrs) {
	case 0:
		return field.ErrorList{field.Required(path, "at least one CIDR required")}
	case 1, 2:
	default:
		return invalid(path, cidrs, "may only hold up to 2 values")
	}
	families := map[corev1.IPFamily]bool{}
	for i, text := range cidrs {
		errs = append(errs, validation.IsValidCIDR(path.Index(i), text)...)
		if p, err := netip.ParsePrefix(text); err == nil {
			families[familyOf(p.Addr())] = true
		}
	}
	if len(errs) == 0 && len(families) < len(cidrs) {
		errs = invalid(path, cidrs,
			"may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64")
	}
	return errs
}

// keepsRanges checks that ranges do not change. One of the other family may be added.
func keepsRanges(now, was []string, path *field.Path) field.ErrorList {
	if len(now) != len(was) && (len(was) != 1 || len(now) != 2) {
		return invalid(path, now, "field is immutable")
	}
	var errs field.ErrorList
	for i := range was {
		if now[i] != was[i] {
			errs = append(errs, field.Invalid(path.Index(i), now[i], "field is immutable"))
		}
	}
	return errs
}

// isCanonicalIP returns what is wrong with the name of an IPAddress.
func isCanonicalIP(name string, _ bool) []string {
	var out []string
	for _, e := range validation.IsValidIP(nil, name) {
		out = append(out, e.Detail)
	}
	return out
}

// admitIPAddress checks the claim of an address.
func admitIPAddress(o, old *networkingv1.IPAddress) field.ErrorList {
	path := field.NewPath("spec", "parentRef")
	var errs field.ErrorList
	parent := o.Spec.ParentRef
	if parent == nil {
		return append(errs, field.Required(path, ""))
	}
	errs = append(errs, checkSet(path.Child("group"), parent.Group, validation.IsDNS1123Subdomain)...)
	for _, p := range []struct{ field, value string }{{"resource", parent.Resource}, {"name", parent.Name}} {
		if p.value == "" {
			errs = append(errs, field.Required(path.Child(p.field), ""))
		}
		errs = append(errs, checkSet(path.Child(p.field), p.value, content.IsPathSegmentName)...)
	}
	errs = append(errs, checkSet(path.Child("namespace"), parent.Namespace, content.IsPathSegmentName)...)
	if old != nil && !equality.Semantic.DeepEqual(parent, old.Spec.ParentRef) {
		errs = append(errs, field.Invalid(path, parent, "field is immutable"))
	}
	return errs
}

// touchedAddresses notes the ClusterIPs of a Service whose IPAddresses have to follow it.
func (tx *Tx) touchedAddresses(o Object) {
	switch o := o.(type) {
	case *corev1.Service:
		for _, text := range o.Spec.ClusterIPs {
			if ip, err := netip.ParseAddr(text); err == nil {
				tx.addresses[Key{"", ip.String()}] = struct{}{}
			}
		}
	case *networkingv1.IPAddress:
		if !tx.settling {
			tx.addresses[KeyOf(o)] = struct{}{}
		}
	}
}

// reconcileAddress makes the IPAddress of a ClusterIP exist as long as a Service holds it, and ends ServiceCIDRs that
// have waited for that.
func (tx *Tx) reconcileAddress(key Key) {
	ip, err := netip.ParseAddr(key.Name)
	if err != nil {
		return
	}
	if tx.s.ipAddresses {
		tx.followAddress(key, ip)
	}
	for _, o := range tx.s.tables[KindServiceCIDR].objectsInOrder() {
		if o.GetDeletionTimestamp() != nil {
			tx.endRange(o.(*networkingv1.ServiceCIDR))
		}
	}
}

func (tx *Tx) followAddress(key Key, ip netip.Addr) {
	old, exists := tx.s.tables[KindIPAddress].get(key)
	service, held := tx.s.index.addresses[ip]
	switch {
	case !held && exists && isManaged(old):
		tx.remove(ResourceOf(old), old)
	case held && !exists:
		tx.put(ResourceOf((*networkingv1.IPAddress)(nil)), &networkingv1.IPAddress{
			ObjectMeta: metav1.ObjectMeta{Name: key.Name, Labels: map[string]string{
				networkingv1.LabelIPAddressFamily: string(familyOf(ip)), networkingv1.LabelManagedBy: addressManager,
			}},
			Spec: networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{
				Resource: "services", Namespace: service.Namespace, Name: service.Name,
			}},
		})
	}
}

// endRange takes the finalizer from a ServiceCIDR that is being deleted once no Service needs it. Its status says
// why it stays until then.
func (tx *Tx) endRange(old *networkingv1.ServiceCIDR) {
	c := copyOf(old)
	if tx.isNeeded(c) {
		tx.setRangeCondition(c, metav1.ConditionFalse, networkingv1.ServiceCIDRReasonTerminating,
			"There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR")
	} else {
		c.Finalizers = slices.DeleteFunc(slices.Clone(c.Finalizers), func(f string) bool { return f == rangeFinalizer })
	}
	r := ResourceOf(c)
	tx.put(r, c)
	tx.goIfReady(r, KeyOf(c))
}

// isNeeded reports whether a Service has an address of a ServiceCIDR that lies in no other one.
func (tx *Tx) isNeeded(c *networkingv1.ServiceCIDR) bool {
	for _, p := range prefixesOf(c) {
		others := tx.s.serviceRanges(familyOf(p.Addr()))
		if c.Name == defaultRange {
			others = others[1:]
		}
		for ip := range tx.s.index.addresses {
			if p.Contains(ip) && !slices.ContainsFunc(others, func(o netip.Prefix) bool { return o.Contains(ip) }) {
				return true
			}
		}
	}
	return false
}

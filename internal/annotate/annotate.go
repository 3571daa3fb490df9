// SPDX-License-Identifier: Apache-2.0

// Package annotate says which Service, port and endpoint a packet rule is about, and what the rule is for. It knows
// rules of any program by the names, addresses and ports in them.
package annotate

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/viplab/viplab/internal/lab/ruleset"
	"github.com/viplab/viplab/lab/cluster/store"
)

// Book knows the Services of a cluster.
type Book struct {
	// services are the Services by name; the values are their ports.
	services map[store.Key]bool
	// frontends are the addresses of Services.
	frontends map[netip.Addr][]frontend
	// endpoints are the addresses of endpoints.
	endpoints map[netip.Addr][]endpoint
	// nodePorts are ports of every node, health check ports among them.
	nodePorts map[uint16][]role
	// names are those of addresses of pods and machines.
	names map[netip.Addr]string
	// remarks are what a program says of chains, sets, comments and sockets that it has made, by their text.
	remarks map[string]string
}

// role is what an address or a port is to a Service.
type role struct {
	service store.Key
	port    *corev1.ServicePort // nil for a health check port
	as      string              // "ClusterIP", ...
}

// frontend is an address and port of a Service.
type frontend struct {
	number uint16
	role
}

// endpoint is an address and port that a Service sends packets to.
type endpoint struct {
	number  uint16
	service store.Key
	port    string // the name of the Service's port
}

// New returns a Book for the state of a cluster. Names are those of addresses of pods and machines; remarks are what a
// program says of the chains, sets, comments and sockets that it has made, by their names. Both may be nil.
func New(state *store.Snapshot, names map[netip.Addr]string, remarks map[string]string) *Book {
	b := &Book{
		services: map[store.Key]bool{}, frontends: map[netip.Addr][]frontend{}, endpoints: map[netip.Addr][]endpoint{},
		nodePorts: map[uint16][]role{}, names: names, remarks: remarks,
	}
	for _, s := range state.Services {
		b.addService(s)
	}
	for _, slice := range state.EndpointSlices {
		b.addEndpoints(slice)
	}
	return b
}

func (b *Book) addService(s *corev1.Service) {
	key := store.KeyOf(s)
	b.services[key] = true
	var balancers []string
	for _, i := range s.Status.LoadBalancer.Ingress {
		balancers = append(balancers, i.IP)
	}
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		for as, addresses := range map[string][]string{
			"ClusterIP": s.Spec.ClusterIPs, "external IP": s.Spec.ExternalIPs, "load balancer IP": balancers,
		} {
			for _, text := range addresses {
				if a, err := netip.ParseAddr(text); err == nil {
					b.frontends[a] = append(b.frontends[a], frontend{uint16(p.Port), role{key, p, as}})
				}
			}
		}
		if p.NodePort != 0 {
			n := uint16(p.NodePort)
			b.nodePorts[n] = append(b.nodePorts[n], role{key, p, "NodePort"})
		}
	}
	if n := uint16(s.Spec.HealthCheckNodePort); n != 0 {
		b.nodePorts[n] = append(b.nodePorts[n], role{key, nil, "health check port"})
	}
}

func (b *Book) addEndpoints(slice *discoveryv1.EndpointSlice) {
	key := store.Key{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}
	for _, e := range slice.Endpoints {
		for _, text := range e.Addresses {
			a, err := netip.ParseAddr(text)
			if err != nil {
				continue // a slice of host names
			}
			for _, p := range slice.Ports {
				if p.Port != nil {
					b.endpoints[a] = append(b.endpoints[a], endpoint{uint16(*p.Port), key, pointed(p.Name)})
				}
			}
		}
	}
}

func pointed(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// String returns "default/web http 80/TCP: NodePort", for example.
func (r role) String() string {
	if r.port == nil {
		return fmt.Sprintf("%s: %s", r.service, r.as)
	}
	name := r.port.Name
	if name != "" {
		name = " " + name
	}
	return fmt.Sprintf("%s%s %d/%s: %s", r.service, name, r.port.Port, r.port.Protocol, r.as)
}

// Has reports whether there is a Service of that name.
func (b *Book) Has(s store.Key) bool { return b.services[s] }

// All annotates all rules of a ruleset, where it knows something about them.
func (b *Book) All(r *ruleset.Ruleset) {
	for _, t := range r.Tables {
		for _, c := range t.Chains {
			if c.Comment == "" {
				c.Comment = b.remarks[c.Name]
			}
			for _, rule := range c.Rules {
				rule.About = b.rule(rule.Text, c.Name)
			}
		}
	}
	for _, s := range allSets(r) {
		if s.Comment == "" {
			s.Comment = b.remarks[s.Name]
		}
		for i := range s.Elements {
			s.Elements[i].About = b.Find(s.Elements[i].Text).String()
		}
	}
	for _, s := range r.Servers {
		of := b.Find(s.String())
		s.About = of.String()
		for i := range s.Real {
			s.Real[i].About = b.endpointOf(of, s.Real[i].At)
		}
	}
	for _, s := range r.Sockets {
		s.About = b.remarks[s.At.String()]
		if s.About == "" {
			s.About = join(b.ofPorts([]uint16{s.At.Port()}))
		}
	}
}

// endpointOf says which endpoint of the found Services, or else of any, an address is.
func (b *Book) endpointOf(of Found, at netip.AddrPort) string {
	f := Found{services: of.services}
	b.address(&f, at, nil, len(of.services) > 0)
	return f.String()
}

func allSets(r *ruleset.Ruleset) []*ruleset.Set {
	sets := slices.Clone(r.IPSets)
	for _, t := range r.Tables {
		sets = append(sets, t.Sets...)
	}
	return sets
}

// rule says what a rule of a chain is about and for.
func (b *Book) rule(text, chain string) string {
	about, does := b.find(text, chain).String(), purpose(text)
	if about != "" && does != "" {
		return about + "; " + does
	}
	return about + does
}

// purposes are what the ends of rules do to packets.
var purposes = []struct {
	end  *regexp.Regexp
	does string
}{
	{regexp.MustCompile(`-j DNAT|dnat (ip6? )?to`), "changes the destination"},
	{regexp.MustCompile(`-j REDIRECT|\bredirect\b`), "changes the destination to this node"},
	{regexp.MustCompile(`-j MASQUERADE|\bmasquerade\b`), "changes the source to an address of this node"},
	{regexp.MustCompile(`-j SNAT|snat (ip6? )?to`), "changes the source"},
	{regexp.MustCompile(`-j REJECT|\breject\b`), "refuses"},
	{regexp.MustCompile(`-j DROP|\bdrop$`), "drops"},
	{regexp.MustCompile(`-j MARK|meta mark set`), "marks the packet"},
	{regexp.MustCompile(`-j NFLOG|-j LOG|\blog `), "logs"},
}

var (
	quoted  = regexp.MustCompile(`"[^"]*"`)
	jumping = regexp.MustCompile(`\b(jump|goto) `)
)

// purpose says what a rule does that does not only lead to another chain.
func purpose(text string) string {
	plain := quoted.ReplaceAllString(text, "")
	for _, p := range purposes {
		if p.end.MatchString(plain) && !jumping.MatchString(plain) {
			return p.does
		}
	}
	return ""
}

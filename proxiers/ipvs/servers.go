// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"

	"github.com/moby/ipvs"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/proxiers/nodeaddr"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
)

// Flags of a virtual server (linux/ip_vs.h).
const (
	// flagPersistent is not used. A virtual server of another program may have it.
	flagPersistent = 0x1
	// flagFallback makes the schedulers sh and mh pick another backend if the one that the hash selects has weight 0.
	flagFallback = 0x8
	// flagPort makes the scheduler mh hash the client's port too, as kube-proxy does, so that the connections of one
	// client are spread.
	flagPort = 0x10

	flagsOfOurs = flagPersistent | flagFallback | flagPort
)

// servers are the virtual servers of a family in the kernel.
type servers struct {
	ns        *netns.NS
	family    lab.Family
	scheduler string
	handle    *ipvs.Handle
	log       *slog.Logger
	// have holds the existing virtual servers, and draining those with retired backends.
	have     map[frontend]*virtual
	draining map[frontend]bool
}

// virtual is a virtual server in the kernel.
type virtual struct {
	scheduler string
	flags     uint32
	// weights are the weights of the backends: 1, or 0 for one that takes no new connections.
	weights map[netip.AddrPort]int
}

func newServers(ns *netns.NS, f lab.Family, scheduler string, log *slog.Logger) (*servers, error) {
	s := &servers{ns: ns, family: f, scheduler: scheduler, log: log}
	err := ns.Do(func() (err error) {
		s.handle, err = ipvs.New("") // in the namespace of the thread
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: open IPVS: %w", ns.Name(), err)
	}
	return s, nil
}

// load reads those virtual servers of the family that belong to this proxier.
func (s *servers) load(ours func(frontend) bool) error {
	s.have, s.draining = map[frontend]*virtual{}, map[frontend]bool{}
	all, err := s.handle.GetServices()
	if err != nil {
		return fmt.Errorf("%s: list virtual servers: %w", s.ns.Name(), err)
	}
	for _, found := range all {
		a, ok := netip.AddrFromSlice(found.Address)
		fr := frontend{netip.AddrPortFrom(a, found.Port), uint8(found.Protocol)}
		if !ok || found.FWMark != 0 || found.AddressFamily != uint16(nodeaddr.Domain(s.family)) || !ours(fr) {
			continue
		}
		v := &virtual{scheduler: found.SchedName, flags: found.Flags & flagsOfOurs, weights: map[netip.AddrPort]int{}}
		backends, err := s.backends(fr)
		if err != nil {
			return err
		}
		for to, b := range backends {
			v.weights[to] = b.Weight
			if b.Weight == 0 {
				s.draining[fr] = true
			}
		}
		s.have[fr] = v
	}
	return nil
}

// set creates a virtual server or changes it to the desired one. It leaves surplus backends to retire.
func (s *servers) set(fr frontend, want *server) error {
	service := s.service(fr)
	v := s.have[fr]
	if v == nil {
		if err := s.handle.NewService(service); err != nil {
			return s.refused(fr, "make", err)
		}
		v = &virtual{weights: map[netip.AddrPort]int{}}
		s.have[fr] = v
	} else if v.scheduler != s.scheduler || v.flags != service.Flags {
		if err := s.handle.UpdateService(service); err != nil {
			return s.refused(fr, "change", err)
		}
	}
	v.scheduler, v.flags = s.scheduler, service.Flags
	return s.enlist(fr, service, v, want.backends)
}

// enlist adds the backends that a virtual server lacks.
func (s *servers) enlist(fr frontend, service *ipvs.Service, v *virtual, want []netip.AddrPort) error {
	for _, to := range want {
		do, verb := s.handle.NewDestination, "add"
		if weight, there := v.weights[to]; there {
			if weight == 1 {
				continue
			}
			do, verb = s.handle.UpdateDestination, "take back"
		}
		if err := do(service, destination(to, 1)); err != nil {
			if err := s.refused(fr, verb+" backend "+to.String()+" of", err); err != nil {
				return err
			}
			continue
		}
		v.weights[to] = 1
	}
	return nil
}

// retire removes the backends that a virtual server should not have. One with connections stays with weight 0, so that
// it gets no new ones, until they have ended.
func (s *servers) retire(fr frontend, want *server) error {
	service, v := s.service(fr), s.have[fr]
	if v == nil {
		return nil // the kernel has refused it
	}
	for to, weight := range v.weights {
		if _, found := slices.BinarySearchFunc(want.backends, to, netip.AddrPort.Compare); found {
			continue
		}
		if !s.graceful(fr, slices.Contains(want.serving, to)) {
			if err := s.handle.DelDestination(service, destination(to, 0)); err != nil {
				return s.failed(fr, "remove backend "+to.String()+" of", err)
			}
			delete(v.weights, to)
			continue
		}
		if weight != 0 {
			if err := s.handle.UpdateDestination(service, destination(to, 0)); err != nil {
				return s.failed(fr, "retire backend "+to.String()+" of", err)
			}
			v.weights[to] = 0
		}
		s.draining[fr] = true
	}
	if s.draining[fr] {
		return s.release(fr)
	}
	return nil
}

// graceful reports whether a removed backend may drain. Associations of SCTP, which has several paths, can move to any
// backend. They stay with a backend that gets no new ones, because of a policy or because it terminates, as long as it
// serves. No backend drains under the scheduler dh, which maps an address to one backend and refuses connections
// while that has weight 0.
func (s *servers) graceful(fr frontend, serves bool) bool {
	return (fr.proto == unix.IPPROTO_TCP || serves) && s.scheduler != "dh"
}

// release removes those retired backends of a virtual server that have no connections left.
func (s *servers) release(fr frontend) error {
	v, left := s.have[fr], false
	backends, err := s.backends(fr)
	if err != nil {
		return err
	}
	for to, b := range backends {
		switch {
		case b.Weight != 0:
			continue
		case b.ActiveConnections+b.InactiveConnections > 0:
			left = true
			continue
		}
		if err := s.handle.DelDestination(s.service(fr), destination(to, 0)); err != nil {
			return s.failed(fr, "remove backend "+to.String()+" of", err)
		}
		delete(v.weights, to)
	}
	if !left {
		delete(s.draining, fr)
	}
	return nil
}

// drain calls release for every virtual server with retired backends.
func (s *servers) drain() error {
	for fr := range s.draining {
		if err := s.release(fr); err != nil {
			return err
		}
	}
	return nil
}

// remove removes a virtual server and its backends.
func (s *servers) remove(fr frontend) error {
	if s.have[fr] == nil {
		return nil
	}
	if err := s.handle.DelService(s.service(fr)); err != nil && !errors.Is(err, unix.ESRCH) {
		return s.failed(fr, "remove", err)
	}
	delete(s.have, fr)
	delete(s.draining, fr)
	return nil
}

// backends returns the backends of a virtual server in the kernel.
func (s *servers) backends(fr frontend) (map[netip.AddrPort]*ipvs.Destination, error) {
	all, err := s.handle.GetDestinations(s.service(fr))
	if err != nil {
		return nil, s.failed(fr, "list the backends of", err)
	}
	out := make(map[netip.AddrPort]*ipvs.Destination, len(all))
	for _, d := range all {
		if a, ok := netip.AddrFromSlice(d.Address); ok {
			out[netip.AddrPortFrom(a, d.Port)] = d
		}
	}
	return out, nil
}

// service returns the library's type for a virtual server.
func (s *servers) service(fr frontend) *ipvs.Service {
	v := &ipvs.Service{
		AddressFamily: uint16(nodeaddr.Domain(s.family)), Protocol: uint16(fr.proto),
		Address: fr.at.Addr().AsSlice(), Port: fr.at.Port(), SchedName: s.scheduler,
		Netmask: 0xffffffff,
	}
	if s.family == lab.V6 {
		v.Netmask = 128
	}
	switch s.scheduler {
	case "sh":
		v.Flags |= flagFallback
	case "mh":
		v.Flags |= flagFallback | flagPort
	}
	return v
}

// destination returns the library's type for a backend. Forwarding method 0 is masquerading.
func destination(to netip.AddrPort, weight int) *ipvs.Destination {
	return &ipvs.Destination{Address: to.Addr().AsSlice(), Port: to.Port(), Weight: weight,
		AddressFamily: uint16(netns.Domain(to.Addr()))}
}

func (s *servers) failed(fr frontend, verb string, err error) error {
	return fmt.Errorf("%s: %s virtual server %s: %w", s.ns.Name(), verb, fr, err)
}

// refused reports whether the kernel will never accept a request, such as to send to a broadcast address. Such a
// request does not block the others.
func (s *servers) refused(fr frontend, verb string, err error) error {
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPROTONOSUPPORT) {
		s.log.Warn(s.failed(fr, verb, err).Error())
		return nil
	}
	return s.failed(fr, verb, err)
}

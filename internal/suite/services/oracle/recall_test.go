// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
)

func TestRecall(t *testing.T) {
	sticky := func(change func(*corev1.Service), endpoints ...discoveryv1.Endpoint) *State {
		return world(func(s *corev1.Service) {
			s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
			if change != nil {
				change(s)
			}
		}, endpoints...)
	}
	near, far, third := endpointOn("n1", onN1), endpointOn("n2", onN2), endpointOn("n2", "10.244.2.6")
	elsewhere := sticky(nil, far, third) // the slice that listed the endpoint is gone, and another one lists it
	other := sliceOf(near)
	other.Name = "other"
	elsewhere.EndpointSlices = append(elsewhere.EndpointSlices, other)
	otherPort := sticky(nil, near, far)
	otherPort.EndpointSlices[0].Ports[0].Port = ptr.To[int32](8081)
	anew := sticky(nil, near, far)
	anew.Services[0].UID = "another"
	short := func(s *corev1.Service) {
		s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
			ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To[int32](10)},
		}
	}
	unready := endpointOn("n1", onN1, is(false, false, false))
	noExternalIPs := func(s *corev1.Service) { s.Spec.ExternalIPs = nil }
	before, server := sticky(nil, near, far), netip.MustParseAddrPort(onN1+":8080")
	for name, c := range map[string]struct {
		before, now *State
		kept        bool
	}{
		"nothing changes":                  {before, sticky(nil, near, far), true},
		"another endpoint comes":           {before, sticky(nil, near, far, third), true},
		"another endpoint leaves":          {before, sticky(nil, near), true},
		"the endpoint leaves":              {before, sticky(nil, far), false},
		"it turns unready":                 {before, sticky(nil, unready, far), false},
		"another slice lists it":           {before, elsewhere, false},
		"it gets another port":             {before, otherPort, false},
		"the Service is made anew":         {before, anew, false},
		"the Service is edited":            {before, sticky(noExternalIPs, near, far), false},
		"the policy is Local":              {sticky(etpLocal, near, far), sticky(etpLocal, near, far, third), false},
		"the internal policy is Local":     {sticky(itpLocal, near, far), sticky(itpLocal, near, far, third), false},
		"clients are remembered for 10 s":  {sticky(short, near, far), sticky(short, near, far, third), false},
		"there is no affinity":             {world(nil, near, far), world(nil, near, far), false},
		"another Service gets the address": {before, sharedBy(sticky(nil, near, far)), false},
	} {
		got := c.now.Recall(c.before, Question{
			From: podOnN1, To: netip.MustParseAddrPort(vip + ":80"), Protocol: corev1.ProtocolTCP,
		}, server)
		if kept := got.Verdict == Served && got.Rule() == affinityKept &&
			slices.Equal(got.Endpoints, []netip.AddrPort{server}); kept != c.kept || !kept && got.Verdict != Open {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// sharedBy adds a Service with the same addresses.
func sharedBy(s *State) *State {
	rival := s.Services[0].DeepCopy()
	rival.Name = "rival"
	s.Services = append(s.Services, rival)
	return s
}

// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// sliceOf returns a slice with a port and addresses; one in parentheses is not ready.
func sliceOf(name string, port int32, addresses ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
	}
	for _, a := range addresses {
		ip := strings.Trim(a, "()")
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{ip}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(ip == a)},
		})
	}
	return s
}

func write(subsets []corev1.EndpointSubset) string {
	var out []string
	for _, s := range subsets {
		var ports []string
		for _, p := range s.Ports {
			ports = append(ports, fmt.Sprintf("%s:%d/%s", p.Name, p.Port, p.Protocol))
		}
		out = append(out, addresses(&corev1.Endpoints{Subsets: []corev1.EndpointSubset{s}})+" on "+strings.Join(ports, " "))
	}
	return strings.Join(out, "; ")
}

func TestSubsets(t *testing.T) {
	six := sliceOf("http", 80, "fd00::1")
	six.AddressType = discoveryv1.AddressTypeIPv6
	headless := sliceOf("", 0, "10.0.0.1")
	headless.Ports = nil
	ended := sliceOf("http", 80, "(10.0.0.9)")
	ended.Endpoints[0].Conditions.Terminating = ptr.To(true)
	pods := sliceOf("http", 80, "10.0.0.1", "10.0.0.1")
	for i := range pods.Endpoints {
		pods.Endpoints[i].TargetRef = &corev1.ObjectReference{UID: types.UID(fmt.Sprint(i))}
	}
	for _, c := range []struct {
		name, want string
		slices     []*discoveryv1.EndpointSlice
	}{
		{"a port in two slices", "10.0.0.1 10.0.0.2 on http:80/TCP", []*discoveryv1.EndpointSlice{
			sliceOf("http", 80, "10.0.0.1"), sliceOf("http", 80, "10.0.0.1", "10.0.0.2"), six,
		}},
		{"two ports with the same addresses", "10.0.0.1 10.0.0.2 on adm:81/TCP http:80/TCP", []*discoveryv1.EndpointSlice{
			sliceOf("http", 80, "10.0.0.2", "10.0.0.1"), sliceOf("adm", 81, "10.0.0.1"), sliceOf("adm", 81, "10.0.0.2"),
		}},
		{"two ports with different addresses", "10.0.0.1 10.0.0.3 on adm:81/TCP; 10.0.0.1 10.0.0.2 on http:80/TCP",
			[]*discoveryv1.EndpointSlice{
				sliceOf("http", 80, "10.0.0.1", "10.0.0.2"), sliceOf("adm", 81, "10.0.0.3", "10.0.0.1"),
			}},
		{"ready on one port alone", "10.0.0.1 on adm:81/TCP; (10.0.0.1) on http:80/TCP", []*discoveryv1.EndpointSlice{
			sliceOf("http", 80, "(10.0.0.1)"), sliceOf("adm", 81, "10.0.0.1"),
		}},
		{"ready says one slice, not the other", "(10.0.0.1) on http:80/TCP", []*discoveryv1.EndpointSlice{
			sliceOf("http", 80, "(10.0.0.1)"), sliceOf("http", 80, "10.0.0.1"),
		}},
		{"one port name, two numbers", "10.0.0.1 on http:80/TCP; 10.0.0.2 on http:8080/TCP", []*discoveryv1.EndpointSlice{
			sliceOf("http", 80, "10.0.0.1"), sliceOf("http", 8080, "10.0.0.2"),
		}},
		{"two pods of the host network", "10.0.0.1 10.0.0.1 on http:80/TCP", []*discoveryv1.EndpointSlice{pods}},
		{"no ports", "10.0.0.1 on ", []*discoveryv1.EndpointSlice{headless}},
		{"a pod that ends", "", []*discoveryv1.EndpointSlice{ended}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := write(subsetsOf(c.slices, discoveryv1.AddressTypeIPv4)); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

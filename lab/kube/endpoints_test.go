package kube

import (
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/yaml"
)

func checkEndpoints(t *testing.T, s *discoveryv1.EndpointSlice, want []discoveryv1.Endpoint) {
	t.Helper()
	checkSame(t, "endpoints of "+s.Name, s.Endpoints, want)
}

// checkSame compares two values as YAML, which is also how people read them.
func checkSame(t *testing.T, what string, got, want any) {
	t.Helper()
	g, err := yaml.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	w, err := yaml.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if string(g) != string(w) {
		t.Errorf("%s:\n%s\nwant:\n%s", what, g, w)
	}
}

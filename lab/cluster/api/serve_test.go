// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/netns"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func newNamespace(t *testing.T, name string) *netns.NS {
	t.Helper()
	ns, err := netns.New(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	lo, err := ns.Netlink().LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if err := ns.Netlink().LinkSetUp(lo); err != nil {
		t.Fatal(err)
	}
	return ns
}

// clientIn returns an HTTPS client in a namespace that trusts the endpoint's authority alone.
func clientIn(t *testing.T, ns *netns.NS, e *Endpoint) *http.Client {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(e.CA) {
		t.Fatalf("the authority is no certificate: %s", e.CA)
	}
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: pool},
		ForceAttemptHTTP2: true,
		DialContext: func(ctx context.Context, network, to string) (net.Conn, error) {
			return ns.Dial(ctx, network, netip.AddrPort{}, netip.MustParseAddrPort(to))
		},
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func TestServe(t *testing.T) {
	s := New(store.New(store.Config{}))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var watches []*http.Response
	for _, name := range []string{"n1", "n2"} { // the same address in both
		ns := newNamespace(t, name)
		e, err := s.Serve(ctx, ns, "127.0.0.1:6443")
		if err != nil {
			t.Fatal(err)
		}
		if e.URL != "https://127.0.0.1:6443" {
			t.Errorf("the URL is %s", e.URL)
		}
		c := clientIn(t, ns, e)
		for path, token := range map[string]string{"/api/v1/nodes?watch=1": e.Token, "/readyz": "wrong"} {
			r, err := http.NewRequestWithContext(ctx, "GET", e.URL+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer "+token)
			resp, err := c.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			switch {
			case token == "wrong" && resp.StatusCode != http.StatusUnauthorized:
				t.Errorf("%s with a wrong token: %s", path, resp.Status)
			case token != "wrong" && resp.StatusCode != http.StatusOK:
				t.Errorf("%s: %s", path, resp.Status)
			case token != "wrong":
				watches = append(watches, resp)
			}
		}
		if _, err := s.Serve(ctx, ns, "127.0.0.1:6443"); err == nil ||
			!strings.Contains(err.Error(), name+": serve the Kubernetes API on 127.0.0.1:6443: ") {
			t.Errorf("a second listener on one address: %v", err)
		}
		if _, err := c.Get("https://127.0.0.1:6443/readyz"); err != nil {
			t.Errorf("without a token: %v", err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, resp := range watches {
		var rest [1]byte
		if n, err := resp.Body.Read(rest[:]); err == nil {
			t.Errorf("a watch goes on after Close: it read %d", n)
		}
	}
	if _, err := s.Serve(ctx, newNamespace(t, "n3"), "127.0.0.1:0"); err == nil {
		t.Error("a closed server serves")
	}
}

// A listener ends with its context, and leaves others alone.
func TestServeUntilTheContextEnds(t *testing.T) {
	s := New(store.New(store.Config{}))
	defer s.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	one, stop := context.WithCancel(ctx)
	ns := newNamespace(t, "n1")
	ends, err := s.Serve(one, ns, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stays, err := s.Serve(ctx, ns, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	get := func(ctx context.Context, e *Endpoint, path string) (*http.Response, error) {
		r, err := http.NewRequestWithContext(ctx, "GET", e.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+e.Token)
		return clientIn(t, ns, e).Do(r)
	}
	watch, err := get(ctx, ends, "/api/v1/nodes?watch=1")
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Body.Close()
	stop()
	var rest [1]byte
	if _, err := watch.Body.Read(rest[:]); err == nil {
		t.Error("the watch goes on")
	}
	if resp, err := get(ctx, stays, "/readyz"); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("the other listener: %v, %v", resp, err)
	}
}

func TestKubeconfig(t *testing.T) {
	e := &Endpoint{URL: "https://127.0.0.1:6443", CA: []byte("certificate"), Token: "secret"}
	var got struct {
		CurrentContext string `json:"current-context"`
		Clusters       []struct {
			Name    string
			Cluster struct {
				Server string
				CA     []byte `json:"certificate-authority-data"`
			}
		}
		Users []struct {
			Name string
			User struct{ Token string }
		}
		Contexts []struct {
			Name    string
			Context struct{ Cluster, User string }
		}
	}
	if err := yaml.Unmarshal(e.Kubeconfig(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Clusters[0].Cluster.Server != e.URL || string(got.Clusters[0].Cluster.CA) != "certificate" ||
		got.Users[0].User.Token != "secret" ||
		got.CurrentContext != got.Contexts[0].Name || got.Contexts[0].Context.Cluster != got.Clusters[0].Name ||
		got.Contexts[0].Context.User != got.Users[0].Name {
		t.Errorf("got %+v", got)
	}
}

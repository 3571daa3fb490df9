// SPDX-License-Identifier: Apache-2.0

// Package kube is a small client of the Kubernetes API of a lab.
package kube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// Client talks to one API server.
type Client struct {
	server, token string
	http          http.Client
}

// config is the part of a kubeconfig that a lab writes.
type config struct {
	Clusters []struct {
		Cluster struct {
			Server string `json:"server"`
			CA     []byte `json:"certificate-authority-data"`
		} `json:"cluster"`
	} `json:"clusters"`
	Users []struct {
		User struct {
			Token string `json:"token"`
		} `json:"user"`
	} `json:"users"`
}

// Open returns a client for the kubeconfig file of a lab.
func Open(kubeconfig string) (*Client, error) {
	text, err := os.ReadFile(kubeconfig)
	if err != nil {
		return nil, err
	}
	var c config
	if err := yaml.Unmarshal(text, &c); err != nil {
		return nil, fmt.Errorf("%s: %w", kubeconfig, err)
	}
	if len(c.Clusters) == 0 || len(c.Users) == 0 {
		return nil, fmt.Errorf("%s: no cluster and user", kubeconfig)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.Clusters[0].Cluster.CA)
	return &Client{
		server: c.Clusters[0].Cluster.Server, token: c.Users[0].User.Token,
		http: http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}},
	}, nil
}

// The forms in which the API answers.
const (
	asJSON  = "application/json"
	asTable = "application/json;as=Table;v=v1;g=meta.k8s.io"
)

// open sends a request without a body. The error of an answer other than success is its message.
func (c *Client) open(ctx context.Context, method, path, accept string) (io.ReadCloser, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.server+path, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+c.token)
	r.Header.Set("Accept", accept)
	answer, err := c.http.Do(r)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode < 300 {
		return answer.Body, nil
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	var status metav1.Status
	if json.Unmarshal(text, &status) == nil && status.Message != "" {
		return nil, errors.New(status.Message)
	}
	return nil, fmt.Errorf("%s %s: %s: %s", method, path, answer.Status, text)
}

// Text returns the answer to a GET as it is.
func (c *Client) Text(ctx context.Context, path string) (io.ReadCloser, error) {
	return c.open(ctx, http.MethodGet, path, "*/*")
}

// Table returns the objects at a path as "kubectl get" shows them.
func (c *Client) Table(ctx context.Context, path string) (*metav1.Table, error) {
	var t metav1.Table
	return &t, c.decode(ctx, path, asTable, &t)
}

// Object returns what is at a path, decoded from JSON without a type.
func (c *Client) Object(ctx context.Context, path string) (o map[string]any, err error) {
	return o, c.decode(ctx, path, asJSON, &o)
}

// Delete deletes the object at a path.
func (c *Client) Delete(ctx context.Context, path string) error {
	body, err := c.open(ctx, http.MethodDelete, path, asJSON)
	if err != nil {
		return err
	}
	return body.Close()
}

func (c *Client) decode(ctx context.Context, path, accept string, into any) error {
	body, err := c.open(ctx, http.MethodGet, path, accept)
	if err != nil {
		return err
	}
	defer body.Close()
	return json.NewDecoder(body).Decode(into)
}

// Resource is a kind of object as the API names it.
type Resource struct {
	metav1.APIResource
	prefix string // "/api/v1" or "/apis/GROUP/VERSION"
}

// Path returns the path of an object, of a namespace's objects if the name is empty, or of all if both are.
func (r *Resource) Path(namespace, name string) string {
	path := r.prefix
	if r.Namespaced && namespace != "" {
		path += "/namespaces/" + namespace
	}
	path += "/" + r.Name
	if name != "" {
		path += "/" + name
	}
	return path
}

// Resources lists what the API serves, without subresources.
func (c *Client) Resources(ctx context.Context) ([]Resource, error) {
	var groups metav1.APIGroupList
	if err := c.decode(ctx, "/apis", asJSON, &groups); err != nil {
		return nil, err
	}
	prefixes := []string{"/api/v1"}
	for _, g := range groups.Groups {
		prefixes = append(prefixes, "/apis/"+g.PreferredVersion.GroupVersion)
	}
	var out []Resource
	for _, prefix := range prefixes {
		var list metav1.APIResourceList
		if err := c.decode(ctx, prefix, asJSON, &list); err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			if !strings.Contains(r.Name, "/") {
				out = append(out, Resource{r, prefix})
			}
		}
	}
	return out, nil
}

// Find returns the resource of that plural, singular, kind or short name.
func Find(all []Resource, name string) (*Resource, error) {
	name = strings.ToLower(name)
	i := slices.IndexFunc(all, func(r Resource) bool {
		return r.Name == name || r.SingularName == name || strings.ToLower(r.Kind) == name ||
			slices.Contains(r.ShortNames, name)
	})
	if i < 0 {
		var names []string
		for _, r := range all {
			names = append(names, r.Name)
		}
		return nil, fmt.Errorf("there is no kind %q: there are %s", name, strings.Join(names, ", "))
	}
	return &all[i], nil
}

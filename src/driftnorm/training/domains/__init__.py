"""Training on several domains: twelve algorithms, their hyper-parameters, one run, a sweep."""

#include <headroom/headroom.h>

#include <iostream>

int main() { std::cout << headroom::library_version() << '\n'; }
